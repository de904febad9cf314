"""Messages that a consumer may have had before the last stop, though no file says so.

Due messages are handed out before the ready log has them on disk (docs/decisions/0002). A crash in between leaves such
messages pending, and they come again. But a caller must not be told that one of them is cancelled, and that no consumer
will ever get it. Exactly which messages those are is unknown, but they are among these: the messages due no later than
the last durable bound of the hand-outs (``broker/hand_out_bound.py``), and there when the broker was opened.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tarry.base.types import NEVER_MS, Int64s, Key, Mask
from tarry.message.bulk import SEQ_MIN, first_seq


@dataclass(frozen=True, slots=True)
class PerhapsHanded:
    """Messages due up to ``due_max_ms`` with a seq that was given out before the broker was opened.

    That is a seq below ``seq_end``; for bulk jobs, a seq of an attempt below ``number_end``.
    """

    due_max_ms: int = NEVER_MS
    seq_end: int = 0
    number_end: int = 0

    def mask(self, due_ms: Int64s, seq: Int64s) -> Mask:
        """Return a mask of these messages that belong to the set."""
        early = due_ms <= self.due_max_ms
        if not early.any():
            return early
        is_old = np.where(seq >= SEQ_MIN, seq < first_seq(self.number_end), seq < self.seq_end)
        mask: Mask = early & is_old
        return mask

    def end_of(self, number: int) -> Key:
        """Return the key below which all messages of that attempt belong to the set."""
        return Key(self.due_max_ms + 1 if number < self.number_end else NEVER_MS, 0)


NONE_HANDED = PerhapsHanded()
