"""What a producer gets back."""

from __future__ import annotations

import numpy as np

from tarry.api.receipt import Accepted
from tarry.api.wire import AcceptedAnswer, PlacedAnswer
from tarry.base.types import Int64s


def accepted_of(row: int, answer: AcceptedAnswer | PlacedAnswer, due_ms: Int64s | None) -> Accepted:
    """What the broker answered to a chunk; ``due_ms`` is the chunk's own, for an answer that leaves it out."""
    if isinstance(answer, PlacedAnswer):
        placed = answer.placed
        first, token = (int(placed["seq"][0]), bytes(placed["token"][0])) if len(placed) else (0, b"")
        return Accepted(first, placed["due_ms"].astype(np.int64), token, placed, row)
    due = answer.due_ms if answer.due_ms is not None else due_ms
    assert due is not None
    return Accepted(answer.first_seq, due, answer.token, row=row)
