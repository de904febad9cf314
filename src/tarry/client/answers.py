"""What a producer gets back."""

from __future__ import annotations

from dataclasses import dataclass, field

from tarry import handle
from tarry.fronts.flight.wire import Int64s
from tarry.receipt import Receipt, TopicPending, id_of

__all__ = ["Accepted", "Receipt", "TopicPending", "id_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Accepted:
    """The answer to one chunk of a batch: its rows, from row ``row`` of the data on, are durable.

    Row ``row + i`` has seq ``first_seq + i`` and due time ``due_ms[i]``.
    """

    row: int
    first_seq: int
    count: int
    due_ms: Int64s = field(repr=False)
    token: bytes = field(repr=False)

    def handles(self) -> list[str]:
        """What cancels or reschedules the rows."""
        return [
            handle.encode(self.first_seq + i, due, self.first_seq, self.count, self.token)
            for i, due in enumerate(self.due_ms.tolist())
        ]
