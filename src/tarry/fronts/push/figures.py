"""Figures of a subscription: counts since the process began, and its last requests with outcomes.

Requests are kept in memory alone: a broker that pushes thousands a second would write more for them than for the
messages. The group keeps what must survive a restart: acknowledgements, and the time of the next try.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import islice

from tarry.api.push import PushAttempt
from tarry.base.histogram import Durations

ATTEMPTS_MAX = 200
"""Requests of a subscription that are kept.

As many failed ones are kept besides, which good ones do not drive out.
"""
ANSWERS_BYTES_MAX = 16 << 20
"""Bytes of answers' bodies that are kept in all; above it, no more."""


class AnswerBytes:
    """Size of the kept answers of all subscriptions. Callers hold their lock."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, text: str) -> str:
        """Return ``text`` and count it, if there is room for it, else ""."""
        size = len(text)
        if self._bytes + size > ANSWERS_BYTES_MAX:
            return ""
        self._bytes += size
        return text

    def remove(self, text: str) -> None:
        """Uncount a text that is no longer kept."""
        self._bytes -= len(text)


class AttemptLog:
    """The last requests of all subscriptions. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = AnswerBytes()
        self._recent: dict[str, deque[tuple[str, str, PushAttempt]]] = {}
        self._failed: dict[str, deque[tuple[str, str, PushAttempt]]] = {}

    def add(self, attempt: PushAttempt, content: bytes) -> None:
        """Add a request; ``content``: the beginning of the answer's body."""
        with self._lock:
            logs = [self._recent.setdefault(attempt.name, deque())]
            if attempt.outcome != "pushed":
                logs.append(self._failed.setdefault(attempt.name, deque()))
            for log in logs:
                if len(log) >= ATTEMPTS_MAX:
                    self._bytes.remove(log.popleft()[0])
                text = self._bytes.add(content.decode("utf-8", "replace")) if content else ""
                log.append((text, attempt.webhook_id, attempt))

    def keep(self, names: Collection[str]) -> None:
        """Forget the requests of all other subscriptions."""
        with self._lock:
            for logs in (self._recent, self._failed):
                for name in [name for name in logs if name not in names]:
                    for text, *_ in logs.pop(name):
                        self._bytes.remove(text)

    def find(self, name: str | None, id: str | None, failed: bool, limit: int) -> list[PushAttempt]:
        """Return requests, the newest first; see :class:`tarry.api.operations.ListPushAttempts`."""
        with self._lock:
            logs = [self._failed] if failed else [self._recent, self._failed]
            kept = [entry for log in logs for of, entries in log.items() if name in (None, of) for entry in entries]
        # A failed one may be in both.
        distinct = {
            (entry[2].name, entry[1], entry[2].attempt, entry[2].at_ms): entry
            for entry in kept
            if id is None or id in (entry[1], entry[2].id)
        }
        newest = sorted(distinct.values(), key=lambda entry: -entry[2].at_ms)
        return [replace(attempt, answer=text) for text, _, attempt in islice(newest, limit)]


@dataclass(slots=True, eq=False)
class SubscriptionFigures:
    """Counts of one subscription, which continue when it is changed.

    On the loop's thread, but for reading.
    """

    pushed: int = 0
    failed: int = 0
    error: str | None = None
    error_ms: int | None = None
    pushed_ms: int | None = None
    durations_us: Durations = field(default_factory=Durations)
