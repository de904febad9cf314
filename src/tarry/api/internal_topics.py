"""Tarry's own topics, whose names begin with "tarry.": clients may only read their state.

Fronts keep in them data that no client may read or forge, undecided transactions for example.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tarry.api import operations as ops
from tarry.api.operation import Request
from tarry.base.errors import InvalidArgumentError, InvalidMessageError
from tarry.message.schema import INTERNAL_TOPIC, is_internal

_LOOKING: frozenset[type[Request]] = frozenset(
    (
        ops.GetGroup, ops.ListGroups, ops.GetTopic, ops.HasTopic, ops.GetQueues, ops.FindOffset, ops.FindMessage,
        ops.GetPending, ops.ListPending, ops.GetMessage, ops.Peek, ops.GetForecast, ops.GetHistory,
        ops.ListPushSubscriptions,
        # Dead letters are for the broker's operators, who decide by hand what becomes of them.
        ops.ListDeadLetters, ops.Respawn, ops.Purge,
    )
)  # fmt: skip


def check_open(request: Request) -> None:
    """Refuse what a client must not do with a topic of Tarry's own.

    Raises:
        InvalidArgumentError: it is more than a look.
    """
    topic = getattr(request, "topic", None)
    if isinstance(topic, str) and is_internal(topic) and type(request) not in _LOOKING:
        raise InvalidArgumentError(f"topic {topic!r:.300}: {INTERNAL_TOPIC}")


def check_rows(data: pa.RecordBatch | pa.Table) -> None:
    """Refuse a producer's batch with messages for topics of Tarry's own.

    For callers whose batch is not admitted in this process.

    Raises:
        InvalidMessageError: names one of them.
    """
    if "topic" not in data.schema.names:
        return
    for topic in pc.unique(data.column("topic")).to_pylist():
        if isinstance(topic, str) and is_internal(topic):
            raise InvalidMessageError(f"topic {topic!r:.300}: {INTERNAL_TOPIC}")
