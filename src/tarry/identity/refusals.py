"""Refused callers, counted and written down within bounds; and files that were read again.

Of the logins of one address ten a second are written, of the refusals of one right on one topic the first in a minute;
the others are counted, and the count is written when that time is over. All together there is a bucket of
:data:`BURST` lines that one a second fills: a flood must not push the lines of changes out of the log.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from tarry.api.audit import REFUSAL_REASONS, RELOAD, AskedBy, Reloaded
from tarry.base.errors import InvalidArgumentError, LoginRefusal

Line = Mapping[str, Any]
WriteLine = Callable[[Line], None]
"""Takes a line. Any thread; be quick, never raise."""

LOGINS_MAX = 10
LOGINS_MS = 1_000
RIGHTS_MAX = 1
RIGHTS_MS = 60_000
KEYS_MAX = 4_096
"""Addresses, and rights of callers, that are told apart at a time."""
BURST = 300
REFILL_MS = 1_000
FILES_MAX = 256
"""Files of which it is known what was told of them last."""
TEXT_MAX = 300


class Windows:
    """Lets so many lines of a key through in a while, and counts the others. Not thread-safe."""

    def __init__(self, lines_max: int, period_ms: int) -> None:
        self._lines_max, self._period_ms = lines_max, period_ms
        self._open: dict[Hashable, _Window] = {}
        self.left_out = 0
        """Lines that were not even counted by key, as there were too many keys."""

    def note(self, key: Hashable, line: Line, now_ms: int) -> Iterator[Line]:
        """Yield the lines to write now: this one if there is room, before it what was counted until now."""
        window = self._open.get(key)
        if window is not None and window.is_over(now_ms, self._period_ms):
            del self._open[key]
            yield from window.rest()
            window = None
        if window is None:
            if len(self._open) >= KEYS_MAX:
                self.left_out += 1
                return
            window = self._open[key] = _Window(now_ms)
        window.last = line
        if window.written < self._lines_max:
            window.written += 1
            yield line
        else:
            window.more += 1

    def expire(self, now_ms: int) -> Iterator[Line]:
        """Yield the counts of times that are over, and forget those."""
        over = [key for key, window in self._open.items() if window.is_over(now_ms, self._period_ms)]
        for key in over:
            yield from self._open.pop(key).rest()


class _Window:
    __slots__ = ("last", "more", "since_ms", "written")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.written = self.more = 0
        self.last: Line = {}

    def is_over(self, now_ms: int, period_ms: int) -> bool:
        return not 0 <= now_ms - self.since_ms < period_ms  # also if the clock was set back

    def rest(self) -> Iterator[Line]:
        if self.more:
            yield {**self.last, "more": self.more}


class Refusals:
    """Implements :class:`tarry.api.audit.NotesRefusals`. Any thread."""

    def __init__(self, now_ms: Callable[[], int], write: WriteLine | None) -> None:
        """``write``: None: refusals are only counted."""
        self._now_ms, self._write = now_ms, write
        self._lock = threading.Lock()
        self._logins = Windows(LOGINS_MAX, LOGINS_MS)
        self._rights = Windows(RIGHTS_MAX, RIGHTS_MS)
        self._counts: Counter[str] = Counter()
        self._reloads: dict[tuple[object, object], Line] = {}
        """By machine and file, the details that were told last."""
        self._room, self._filled_ms = BURST, now_ms()
        self._left_out = 0

    @property
    def counts(self) -> dict[str, int]:
        """The number of refusals by reason, of :data:`REFUSAL_REASONS`, since the start."""
        with self._lock:
            return {reason: self._counts[reason] for reason in REFUSAL_REASONS}

    def login(self, front: str, peer: str, refusal: LoginRefusal) -> None:
        """See :meth:`tarry.api.audit.NotesRefusals.login`."""
        line: dict[str, Any] = {"operation": "login", "front": front, "peer": peer, "credential": refusal.credential}
        line["code"] = refusal.reason
        if refusal.details:
            line["details"] = dict(refusal.details)
        self._note(self._logins, (front, peer), line, refusal.reason)

    def right(self, asked: AskedBy, right: str, topic: str | None, group: str | None, operation: str) -> None:
        """See :meth:`tarry.api.audit.NotesRefusals.right`."""
        details = {"right": right, "topic": topic, "group": group}
        given = {name: value for name, value in details.items() if value is not None}
        line = {**asked.fields(), "operation": operation, "code": "forbidden", "details": given}
        self._note(self._rights, (asked.who, right, topic, group), line, "right")

    def reloaded(self, listener: str, reloaded: Reloaded) -> None:
        """See :meth:`tarry.api.audit.NotesRefusals.reloaded`."""
        details = {"host": socket.gethostname(), "file": reloaded.file, **reloaded.content}
        outcome = {"outcome": "done"}
        if reloaded.error is not None:
            outcome = {"outcome": "failed", "code": InvalidArgumentError.code}
            details["text"] = reloaded.error
        line = _cut({"operation": RELOAD, **outcome, "front": listener, "details": details})
        # Strangers cannot cause it, so there is no bound that they could use up.
        if self._write is not None and self._is_news(line["details"]):
            self._write(line)

    def anonymous(self, asked: AskedBy) -> None:
        """See :meth:`tarry.api.audit.NotesRefusals.anonymous`."""
        line = {**asked.fields(), "operation": "login", "outcome": "done"}
        self._note(self._logins, ("anonymous", asked.front, asked.peer), line, None)

    def read(self, line: Line) -> None:
        """Write the first line a minute of a caller who reads what only few may."""
        self._note(self._rights, (line.get("who"), line["operation"]), line, None)

    def take(self, told: Mapping[str, Any]) -> None:
        """Take what a gateway's worker has noted: :meth:`told` there."""
        with self._lock:
            for reason, count in told["counts"].items():
                self._counts[reason if reason in REFUSAL_REASONS else "other"] += int(count)
        for line in map(_cut, told["lines"]):
            if line.get("operation") != RELOAD or self._is_news(line["details"]):
                self._emit([line])

    def flush(self) -> None:
        """Write the counts of times that are over. Called about once a second."""
        with self._lock:
            now_ms = self._now_ms()
            lines = [*self._logins.expire(now_ms), *self._rights.expire(now_ms)]
            left_out = self._left_out + self._logins.left_out + self._rights.left_out
            if left_out and self._fill(now_ms) > 0:
                self._left_out = self._logins.left_out = self._rights.left_out = 0
                lines.append({"operation": "refusals", "code": "left_out", "more": left_out})
        self._emit(lines)

    def _is_news(self, details: Line) -> bool:
        """Return whether that is something else than what was told last of a file that was read again."""
        file = details.get("host"), details.get("file")
        with self._lock:
            if self._reloads.get(file) == details:
                return False
            if len(self._reloads) >= FILES_MAX:
                self._reloads.clear()
            self._reloads[file] = details
        return True

    def _note(self, windows: Windows, key: Hashable, line: Line, reason: str | None) -> None:
        with self._lock:
            if reason is not None:
                self._counts[reason] += 1
            if self._write is None:
                return
            line = _cut({name: value for name, value in line.items() if value is not None})
            lines = list(windows.note(key, line, self._now_ms()))
        self._emit(lines)

    def _emit(self, lines: list[Line]) -> None:
        if self._write is None:
            return
        for line in lines:
            with self._lock:
                has_room = self._fill(self._now_ms()) > 0
                if has_room:
                    self._room -= 1
                else:
                    self._left_out += 1 + int(line.get("more", 0))
            if has_room:
                self._write({"outcome": "refused", **line})

    def _fill(self, now_ms: int) -> int:
        """Return how many lines there is room for now."""
        if now_ms < self._filled_ms:  # the clock was set back
            self._filled_ms = now_ms
        more = (now_ms - self._filled_ms) // REFILL_MS
        self._filled_ms += more * REFILL_MS
        self._room = min(BURST, self._room + more)
        return self._room


def _cut(line: Line) -> dict[str, Any]:
    """Return a line whose texts, which strangers may have chosen, are short."""
    cut: dict[str, Any] = {}
    for name, value in line.items():
        cut[name] = _cut(value) if isinstance(value, Mapping) else value[:TEXT_MAX] if isinstance(value, str) else value
    return cut
