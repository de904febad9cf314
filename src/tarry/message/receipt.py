"""Receipts of scheduled messages, and what is pending of a topic. Imports nothing slow.

The same in-process and through the client.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from tarry.message import handle

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


ReceiptOutcome = Literal["scheduled", "replaced", "kept", "duplicate", "not_pending", "changed"]
OUTCOMES: tuple[ReceiptOutcome, ...] = ("scheduled", "replaced", "kept", "duplicate", "not_pending", "changed")
"""Outcomes of a scheduled message; see :class:`Receipt`."""
NO_SEQ = -1
"""In place of a message that there is not."""


def id_of(seq: int) -> str:
    """Return the id of a message whose producer gave it none."""
    return f"{seq:016x}"


class Receipt:
    """The answer to one scheduled, durable message; the broker's clock resolved its delay to ``due_ms``.

    ``outcome`` is "scheduled"; "replaced": another message of its key was pending, and was cancelled; "kept": such a
    message was pending, and this is its receipt; "duplicate": a message of its id had been accepted within the dedupe
    window, and this is its receipt. With the condition ``on_key="if_pending"``: "replaced"; "not_pending": no message
    of its key was (it was delivered, cancelled, or never there), and nothing was scheduled, so there is no handle and
    ``seq`` is -1; "changed": another one than ``if_seq`` says was pending, which this is the receipt of, and it stays.
    """

    __slots__ = ("_first_seq", "_rows", "_token", "due_ms", "id", "outcome", "seq")

    def __init__(
        self,
        id: str,
        seq: int,
        due_ms: int,
        first_seq: int,
        rows: int,
        token: bytes,
        outcome: ReceiptOutcome = "scheduled",
    ) -> None:
        self.id = id
        self.seq = seq
        self.due_ms = due_ms
        self._first_seq = first_seq
        self._rows = rows
        self._token = token
        self.outcome = outcome

    @property
    def handle(self) -> str:
        """Handle that cancels or reschedules the message later; keep it as it is."""
        if self.seq == NO_SEQ:
            return ""
        return handle.encode(self.seq, self.due_ms, self._first_seq, self._rows, self._token)

    @property
    def due(self) -> datetime:
        """The due time as an aware datetime."""
        return _EPOCH + timedelta(milliseconds=self.due_ms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Receipt) and (self.seq, self.handle) == (other.seq, other.handle)

    def __hash__(self) -> int:
        return hash((self.seq, self.due_ms))

    def __repr__(self) -> str:
        fields = f"id={self.id!r}, seq={self.seq}, due_ms={self.due_ms}, handle={self.handle!r}"
        return f"Receipt({fields}, outcome={self.outcome!r})"


@dataclass(frozen=True, slots=True)
class TopicPending:
    """Numbers of a topic: pending (not due yet), next due time, and ready messages.

    Ready are those that the slowest group has not acknowledged.
    """

    topic: str
    pending: int
    next_due_ms: int | None
    ready: int
