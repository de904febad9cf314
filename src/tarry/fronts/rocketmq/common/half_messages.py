"""Messages whose transaction is not decided yet, "half messages" in RocketMQ: durable, but hidden.

A half message is a message of the topic ``tarry.halves`` under the transaction's id as its key, and a series: at each
occurrence a producer is asked for its decision. So undecided transactions are on disk, exactly one occurrence of each
is pending at a time, and no list of open transactions has to be kept in memory or rebuilt.

Commit moves the half message to its real topic, rollback cancels it. Each is one decision of the intake's writer and
one frame on disk, so there is no moment at which a crash could leave both or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa

from tarry.api.local import AnyBroker
from tarry.api.operations import CancelKeys
from tarry.api.outcome import Outcome
from tarry.base.errors import StaleCommitError
from tarry.fronts.rocketmq.common.draft import Draft
from tarry.fronts.rocketmq.common.names import HALF_MESSAGES
from tarry.fronts.rocketmq.common.properties import DELIVER_MS, MESSAGE_ID, REAL_TOPIC, SHARDING_KEY, TAGS, map_of
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.rights import check_produce
from tarry.fronts.rocketmq.settings import RocketMQSettings
from tarry.identity.principal import LOCAL, Principal
from tarry.message.options import ORDER_KEY
from tarry.message.properties import with_property
from tarry.message.schema import PROPERTIES, UNNUMBERED
from tarry.repeat import Repeat, to_json

_ID_CHARACTERS = 40
_KEPT = (REAL_TOPIC, MESSAGE_ID, SHARDING_KEY, DELIVER_MS, TAGS)
"""Properties of a half message that its message does not have."""
_TAG_BYTES_MAX = 255
"""Tags longer than this are kept as a property of the half message.

A half message is checked as any client's message is (:class:`tarry.message.admission.MessageLimits`).
"""


class HalfMessages:
    """Stores and decides half messages. Any thread.

    The broker's settings say when, and how often, a producer is asked about a transaction.
    """

    def __init__(self, broker: AnyBroker) -> None:
        self._broker = broker
        settings = RocketMQSettings.of(broker.config)
        self._first_ms = settings.rocketmq_check_first_ms
        repeat = Repeat(every_ms=settings.rocketmq_check_ms, times=settings.rocketmq_checks_max, missed="last")
        self._repeat = to_json(repeat)

    @staticmethod
    def transaction_id(draft: Draft) -> str:
        """Return a half message's transaction id.

        It is the same for a message that is sent again, whose half message is there already.
        """
        return sha256(f"{draft.topic}\0{draft.id}".encode()).hexdigest()[:_ID_CHARACTERS]

    def rows(self, drafts: Sequence[Draft]) -> pa.RecordBatch:
        """Return columns for :meth:`AnyBroker.submit`, a row for each draft; all are half messages."""
        ids = [self.transaction_id(draft) for draft in drafts]
        columns: dict[str, Any] = {
            "topic": [HALF_MESSAGES] * len(drafts),
            "due_ms": [self._first_due_ms(draft) for draft in drafts],
            "id": ids,
            "key": ids,
            "on_key": ["keep"] * len(drafts),
            "tag": [None if _is_long(draft.tag) else draft.tag for draft in drafts],
            "repeat": [self._repeat] * len(drafts),
        }
        arrays = {
            name: pa.array(values, pa.int64() if name == "due_ms" else pa.string()) for name, values in columns.items()
        }
        arrays["body"] = pa.array([d.body for d in drafts], pa.binary())
        arrays["properties"] = map_of([d.properties + kept_properties(d) for d in drafts])
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    def commit(self, transaction_id: str, message_id: str, principal: Principal = LOCAL) -> None:
        """Have the message delivered, durably when this returns. It may wait for the disk.

        Raises:
            Refusal: NOT_FOUND: it was decided before, the other way or by itself.
            ForbiddenError: the principal may not produce to the message's own topic.
        """
        self._check(transaction_id, principal)
        _refuse_unless_done(self._commit(transaction_id), transaction_id, message_id)

    def rollback(self, transaction_id: str, message_id: str, principal: Principal = LOCAL) -> None:
        """Have the message discarded; otherwise as :meth:`commit`."""
        self._check(transaction_id, principal)
        [outcome] = self._broker.call(CancelKeys(HALF_MESSAGES, [transaction_id]))
        _refuse_unless_done(outcome, transaction_id, message_id)

    def _check(self, transaction_id: str, principal: Principal) -> None:
        """Ask for the right on a half message's topic. Its id is made of the topic, so the answer holds."""
        if principal.rights.is_unlimited:
            return
        half = self._broker.find_keyed(HALF_MESSAGES, transaction_id)
        if not isinstance(half, Outcome):
            check_produce(principal, dict(half.column("properties")[0].as_py() or ()).get(REAL_TOPIC, ""))

    def _commit(self, transaction_id: str) -> Outcome:
        while True:
            half = self._broker.find_keyed(HALF_MESSAGES, transaction_id)
            if isinstance(half, Outcome):
                return half
            seq = half.column("seq")[0].as_py()
            try:
                return self._broker.replace_keyed(HALF_MESSAGES, transaction_id, seq, self._committed(half))
            except StaleCommitError:
                continue  # since it was found, it went on to its next check

    def _first_due_ms(self, draft: Draft) -> int:
        first_ms = self._first_ms if draft.recovery_ms is None else draft.recovery_ms
        return self._broker.clock.now_ms() + first_ms

    def _committed(self, half: pa.RecordBatch) -> pa.RecordBatch:
        """Return the message that is stored when the transaction of a half message is committed.

        The half message is one row of SCHEMA, the message one row of UNNUMBERED.
        """
        kept = dict(half.column("properties")[0].as_py() or ())
        now_ms = self._broker.clock.now_ms()
        due_ms = int(kept.get(DELIVER_MS, now_ms))
        late = [(DELIVER_MS, str(due_ms))] if due_ms < now_ms else []
        rest = [(name, value) for name, value in kept.items() if name not in _KEPT] + late
        properties = pa.array([rest], PROPERTIES)
        if SHARDING_KEY in kept:
            properties = with_property(properties, ORDER_KEY, pa.array([kept[SHARDING_KEY]], pa.string()))
        changed = {
            "topic": pa.array([kept[REAL_TOPIC]], pa.string()),
            "due_ms": pa.array(np.array([max(now_ms, due_ms)], np.int64)),
            "id": pa.array([kept[MESSAGE_ID]], pa.string()),
            "key": pa.nulls(1, pa.string()),
            "tag": pa.array([kept[TAGS]], pa.string()) if TAGS in kept else half.column("tag"),
            "properties": properties,
            "born_ms": pa.array(np.array([now_ms], np.int64)),
            "repeat": pa.nulls(1, pa.string()),
        }
        return pa.RecordBatch.from_arrays(
            [changed[f.name] if f.name in changed else half.column(f.name) for f in UNNUMBERED], schema=UNNUMBERED
        )


def check_transaction_id(transaction_id: str) -> None:
    """Check that a transaction's id is not empty.

    Raises:
        Refusal: INVALID_TRANSACTION_ID.
    """
    if not transaction_id.strip():
        raise Refusal(Code.INVALID_TRANSACTION_ID, "transaction_id is empty; allowed: one that a send returned")


def _refuse_unless_done(outcome: Outcome, transaction_id: str, message_id: str) -> None:
    if outcome is not Outcome.DONE:
        raise Refusal(
            Code.NOT_FOUND,
            f"no undecided transaction {transaction_id!r:.100} of message {message_id!r:.100}: {outcome}",
        )


def _is_long(tag: str | None) -> bool:
    return tag is not None and len(tag.encode()) > _TAG_BYTES_MAX


def kept_properties(draft: Draft) -> list[tuple[str, str]]:
    """Return the fields of its message that a half message has to keep, as properties."""
    properties = [(REAL_TOPIC, draft.topic), (MESSAGE_ID, draft.id)]
    if draft.order_key is not None:
        properties.append((SHARDING_KEY, draft.order_key))
    if draft.tag is not None and _is_long(draft.tag):
        properties.append((TAGS, draft.tag))
    if draft.delayed:
        properties.append((DELIVER_MS, str(draft.due_ms)))
    return properties
