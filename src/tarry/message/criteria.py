"""Criteria of a search for messages: a topic, a key, an id or a tag.

They are checked on columns, and on the bounds of a file, which may rule out that it has any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.types import Mask
from tarry.message.schema import in_own_topics

_DERIVED = re.compile(r"[0-7][0-9a-f]{15}")


@dataclass(frozen=True, slots=True)
class Criteria:
    """All that is given must hold. ``seq`` names the one message of that number, if it was given no id."""

    topic: str | None = None
    key: str | None = None
    id: str | None = None
    tag: str | None = None
    seq: int | None = None
    repeating: bool = False
    """Only occurrences of series."""

    @property
    def columns(self) -> list[str]:
        """The columns, beside ``due_ms`` and ``seq``, that :meth:`mask` needs to see."""
        named = [n for n in ("topic", "key", "id", "tag") if getattr(self, n) is not None or self._needs(n)]
        if self._asks_what_is_said and self.topic is None:
            named.insert(0, "topic")
        return [*named, "repeat"] if self.repeating else named

    def _needs(self, name: str) -> bool:
        return name == "id" and self.seq is not None

    @property
    def _asks_what_is_said(self) -> bool:
        """True for what Tarry's own topics do not show: nobody finds it out by looking for a value."""
        return self.key is not None or self.tag is not None

    def mask(self, batch: pa.RecordBatch) -> Mask:
        """Mark the rows that fulfil them; rows that ``batch`` says are no messages never do."""
        mask = np.ones(batch.num_rows, np.bool_)
        for name in ("topic", "key", "id", "tag"):
            if (value := getattr(self, name)) is not None:
                mask &= _mask(pc.equal(batch.column(name), value))
        if self._asks_what_is_said:
            mask &= ~_mask(in_own_topics(batch.column("topic")))
        if self.seq is not None:
            mask &= (batch.column("seq").to_numpy() == self.seq) & _mask(batch.column("id").is_null())
        if self.repeating:
            mask &= _mask(batch.column("repeat").is_valid())
        if "kind" in batch.schema.names:
            mask &= _mask(pc.equal(batch.column("kind"), 0))
        return mask

    def may_be_in(self, seq_min: int, seq_max: int, topic_min: str | None, topic_max: str | None) -> bool:
        """Return whether bounds (inclusive; None: unknown) leave room for such a message."""
        if self.seq is not None and not seq_min <= self.seq <= seq_max:
            return False
        return self.topic is None or topic_min is None or topic_max is None or topic_min <= self.topic <= topic_max


def derived_seq(id: str) -> int | None:
    """Return the seq of an id made by :func:`tarry.message.receipt.id_of`; None: it was not."""
    return int(id, 16) if _DERIVED.fullmatch(id) else None


def _mask(column: Any) -> Mask:
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
