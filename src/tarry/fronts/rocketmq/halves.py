"""Messages of transactions that are not decided yet ("half messages"): durable, and seen by no consumer.

A half is a message of the topic ``tarry.halves`` under the transaction's id as its key, and a series: each occurrence
is a moment at which a producer is asked what became of the transaction. So what is pending is on disk, exactly one
occurrence is pending at a time, and no list of open transactions has to be kept in memory or rebuilt.

Commit moves the half to its real topic, rollback cancels it: each is one decision of the intake's writer and one frame
on disk, so there is no moment at which a crash could leave both or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa

from tarry.api.outcome import Outcome
from tarry.base.errors import TarryError
from tarry.base.message import ORDER_KEY, PROPERTIES, UNNUMBERED
from tarry.base.properties import with_property
from tarry.fronts.rocketmq.core import Core
from tarry.fronts.rocketmq.draft import Draft
from tarry.fronts.rocketmq.names import HALVES
from tarry.fronts.rocketmq.properties import DELIVER_MS, MESSAGE_ID, REAL_TOPIC, SHARDING_KEY, map_of
from tarry.fronts.rocketmq.refusal import Code, Refusal
from tarry.fronts.rocketmq.stubs import definition
from tarry.repeat import Repeat, to_json

_ID_CHARACTERS = 40
_OWN = (REAL_TOPIC, MESSAGE_ID, SHARDING_KEY, DELIVER_MS)
_RESOLUTION = definition.TransactionResolution


class Halves:
    """Any thread."""

    def __init__(self, core: Core, *, first_ms: int, every_ms: int, most: int) -> None:
        """A transaction is asked about after ``first_ms``, then each ``every_ms``, up to ``most`` times."""
        self._core = core
        self._first_ms = first_ms
        self._repeat = to_json(Repeat(every_ms=every_ms, times=most, missed="last"))

    @staticmethod
    def transaction_id(draft: Draft) -> str:
        """Of a half: the same for a message that is sent again, whose half is there already."""
        return sha256(f"{draft.topic}\0{draft.id}".encode()).hexdigest()[:_ID_CHARACTERS]

    def rows(self, drafts: Sequence[Draft]) -> pa.RecordBatch:
        """Columns for the broker, of halves and others."""
        halves = [draft.half for draft in drafts]
        columns: dict[str, Any] = {
            "topic": [HALVES if d.half else d.topic for d in drafts],
            "due_ms": [self._first_due(d) if d.half else d.due_ms for d in drafts],
            "id": [self.transaction_id(d) if d.half else d.id for d in drafts],
            "key": [self.transaction_id(d) if d.half else None for d in drafts],
            "on_key": ["keep" if half else None for half in halves],
            "tag": [d.tag for d in drafts],
            "order_key": [None if d.half else d.order_key for d in drafts],
            "repeat": [self._repeat if half else None for half in halves],
        }
        arrays = {
            name: pa.array(values, pa.int64() if name == "due_ms" else pa.string()) for name, values in columns.items()
        }
        arrays["body"] = pa.array([d.body for d in drafts], pa.binary())
        arrays["properties"] = map_of([d.properties + (_own(d) if d.half else []) for d in drafts])
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    def _first_due(self, draft: Draft) -> int:
        first_ms = self._first_ms if draft.recovery_ms is None else draft.recovery_ms
        return self._core.clock.now_ms() + first_ms

    def end(self, transaction_id: str, resolution: int, message_id: str) -> None:
        """EndTransaction, durable when it returns; it may wait for the disk.

        Raises:
            Refusal: INVALID_TRANSACTION_ID; NOT_FOUND: it was decided before, the other way or by itself.
        """
        if not transaction_id.strip():
            raise Refusal(Code.INVALID_TRANSACTION_ID, "transaction_id is empty; allowed: one that a send returned")
        try:
            if resolution == _RESOLUTION.COMMIT:
                outcome = self._core.replace_key(HALVES, transaction_id, self._made).outcome
            elif resolution == _RESOLUTION.ROLLBACK:
                outcome = self._core.cancel_key(HALVES, transaction_id)
            else:
                return  # not known yet: it is asked again
        except TarryError as error:
            raise Refusal.of(error) from error
        if outcome is not Outcome.DONE:
            raise Refusal(
                Code.NOT_FOUND,
                f"no undecided transaction {transaction_id!r:.100} of message {message_id!r:.100}: {outcome}",
            )

    def _made(self, half: pa.RecordBatch) -> pa.RecordBatch:
        """The message of a half (one row of SCHEMA), as it is stored when its transaction is committed."""
        own = dict(half.column("properties")[0].as_py() or ())
        now_ms = self._core.clock.now_ms()
        rest = [(name, value) for name, value in own.items() if name not in _OWN]
        properties = pa.array([rest], PROPERTIES)
        if SHARDING_KEY in own:
            properties = with_property(properties, ORDER_KEY, pa.array([own[SHARDING_KEY]], pa.string()))
        changed = {
            "topic": pa.array([own[REAL_TOPIC]], pa.string()),
            "due_ms": pa.array(np.array([max(now_ms, int(own.get(DELIVER_MS, 0)))], np.int64)),
            "id": pa.array([own[MESSAGE_ID]], pa.string()),
            "key": pa.nulls(1, pa.string()),
            "properties": properties,
            "born_ms": pa.array(np.array([now_ms], np.int64)),
            "repeat": pa.nulls(1, pa.string()),
        }
        return pa.RecordBatch.from_arrays(
            [changed[f.name] if f.name in changed else half.column(f.name) for f in UNNUMBERED], schema=UNNUMBERED
        )


def _own(draft: Draft) -> list[tuple[str, str]]:
    """What the half has to remember of its message."""
    found = [(REAL_TOPIC, draft.topic), (MESSAGE_ID, draft.id)]
    if draft.order_key is not None:
        found.append((SHARDING_KEY, draft.order_key))
    if draft.delayed:
        found.append((DELIVER_MS, str(draft.due_ms)))
    return found
