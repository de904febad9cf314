"""Messages that came by HTTP, as a batch that :class:`tarry.client.delivery.Delivery` views."""

from __future__ import annotations

import base64
import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tarry.base.errors import StaleLeaseError, TarryError
from tarry.client.delivery import Delivery, Keeps, Settles

_COLUMNS = (
    *("topic", "id", "key", "tag", "due_ms", "born_ms", "expire_ms", "attempt", "offset", "seq", "tries", "repeat"),
)


class HttpBatch:
    """A :class:`tarry.client.delivery.ReceivedBatch`. ``source``: topic and group in which it is settled."""

    def __init__(self, messages: list[dict[str, Any]], settler: Settles, source: tuple[str, str]) -> None:
        self.source = source
        self.settler = settler
        self.keeper: Keeps | None = None
        self.acked: list[int] = []
        self.clean = True
        self.arrived_ms = time.time() * 1000
        self.until_s = math.inf
        self.waiting = self.in_hand = 0
        """Messages that no loop has taken, and loops that are at one of them. The consumer's, under its lock."""
        self.busy = 0
        """Messages that are worked on in ``with`` blocks. Of :class:`Works`."""
        self.lists = _lists(messages)
        self._names: list[str] = [message["delivery"] for message in messages]
        self._open = set(range(len(messages)))
        self._acked_read = 0
        self._said_s = 0.0
        """Until when it is leased because somebody said so, and not its consumer."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._names)

    @property
    def is_kept(self) -> bool:
        """True while its leases are extended; what a loop has let go is not in it, unless others of its are."""
        return self.waiting > 0 or self.in_hand > 0 or self.busy > 0

    def messages(self) -> list[Delivery]:
        """Messages, in order."""
        return [Delivery(self, row) for row in range(len(self))]

    def mark(self) -> None:
        """There are new rows in :attr:`acked`."""
        self.clean = False
        self.settler.mark(self)

    def is_given_back(self, row: int) -> bool:
        """Return whether a row was settled otherwise than by an acknowledgement. Any thread."""
        return row not in self._open and row not in self.acked

    def take_acked(self) -> list[str]:
        """Names of what was acknowledged since the last call; each is settled once."""
        # First the mark, then the length: who appends after our look marks again.
        self.clean = True
        with self._lock:
            end = len(self.acked)
            rows, self._acked_read = self.acked[self._acked_read : end], end
            return self._taken(rows, settle=True)

    def take(self, rows: Iterable[int] | None, *, settle: bool) -> list[str]:
        """Names of those of ``rows`` (None: of all) that are not settled; ``settle``: mark them settled."""
        with self._lock:
            return self._taken(sorted(self._open) if rows is None else rows, settle=settle)

    def take_shorter(self, until_s: float) -> list[str]:
        """Names of what is not settled; none, if somebody said that it is leased for longer than that."""
        return [] if self._said_s >= until_s else self.take(None, settle=False)

    def hold_until(self, until_s: float) -> None:
        """Take its leases for held until then, or for longer where somebody said so."""
        self.until_s = max(until_s, self._said_s)

    def say_extended(self, until_s: float) -> None:
        """Note that somebody has it leased until then: of one message, that is said of all of it."""
        self._said_s = until_s
        self.until_s = max(self.until_s, until_s)

    def _taken(self, rows: Iterable[int], *, settle: bool) -> list[str]:
        taken = [row for row in dict.fromkeys(rows) if row in self._open]
        if settle:
            self._open.difference_update(taken)
        return [self._names[row] for row in taken]


class Works:
    """The keeper of a consumer's batches: what is worked on in ``with`` blocks, by thread. Any thread."""

    def __init__(self) -> None:
        self._by_thread: Counter[int] = Counter()
        self._ended = threading.Condition()

    def enter(self, batch: HttpBatch) -> None:
        """Work at a message of the batch begins.

        Raises:
            StaleLeaseError: its lease is over, or its consumer has ended.
        """
        if time.monotonic() >= batch.until_s or batch.settler.closed:
            raise StaleLeaseError("the message is not this consumer's any more: its lease is over, or it has ended")
        with self._ended:
            batch.busy += 1
            self._by_thread[threading.get_ident()] += 1

    def leave_work(self, batch: HttpBatch) -> None:
        """Note that the work has ended."""
        with self._ended:
            batch.busy -= 1
            self._by_thread[threading.get_ident()] -= 1
            self._by_thread += Counter()  # without those that have none
            self._ended.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Wait until other threads work on nothing, up to so many seconds."""
        me = threading.get_ident()
        with self._ended:
            self._ended.wait_for(lambda: not self._by_thread.keys() - {me}, timeout_s)


def messages_of(answer: Any) -> list[dict[str, Any]]:
    """Return the messages of an answer to a receive.

    Raises:
        TarryError: there are none in it.
    """
    try:
        messages: list[dict[str, Any]] = answer["messages"]
        for message in messages:
            message["body"] = base64.b64decode(message["body_base64"])
            _ = message["delivery"], message["due_ms"]
    except (KeyError, TypeError, ValueError) as error:
        raise TarryError(f"the broker's answer could not be read: {answer!r:.80}") from error
    return messages


def _lists(messages: list[dict[str, Any]]) -> Mapping[str, list[Any]]:
    lists: dict[str, list[Any]] = {name: [message.get(name) for message in messages] for name in _COLUMNS}
    lists["body"] = [message["body"] for message in messages]
    lists["properties"] = [message.get("properties") or {} for message in messages]
    return lists
