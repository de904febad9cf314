"""Tarry's own topics ("tarry." and what follows), and their dead letters: clients read their state.

Fronts keep in them data that no client may read or forge, undecided transactions for example. So operations that look
at messages show of these where they are and when they are due, and nothing that was said in them (:func:`hidden`).
That is so for everybody, and for their dead letters, too: operators decide about these by when they were and how often
they were handed out. Fronts themselves get them whole, as consumers.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tarry.api import operations as ops
from tarry.api.operation import Request
from tarry.base.errors import InvalidArgumentError, InvalidMessageError
from tarry.message.schema import in_own_topics
from tarry.message.topics import INTERNAL_TOPIC, is_internal

_LOOKING: frozenset[type[Request]] = frozenset(
    (
        ops.GetGroup, ops.ListGroups, ops.ListConsumers, ops.GetTopic, ops.HasTopic, ops.GetQueues,
        ops.FindOffset, ops.FindMessage,
        ops.GetPending, ops.ListPending, ops.GetMessage, ops.Peek, ops.GetForecast, ops.GetRates, ops.GetHistory,
        ops.ListPushSubscriptions,
        # Dead letters are for the broker's operators, who decide what becomes of them without a look into them.
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


def hidden(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of messages as an operation may show them.

    Those of Tarry's own topics are without what they say: their key, tag and properties are null,
    and their body is empty.
    """
    own = in_own_topics(rows.column("topic"))
    if not pc.any(own).as_py():
        return rows
    # Nulls are taken where an index is null: that works for columns of all types.
    places = pc.if_else(own, pa.scalar(None, pa.int64()), pa.array(range(rows.num_rows), pa.int64()))
    for name in ("key", "tag", "properties", "body"):
        at = rows.schema.get_field_index(name)
        column = rows.column(at).take(places)
        shown = column.fill_null(b"") if name == "body" else column
        rows = rows.set_column(at, rows.schema.field(at), shown)
    return rows


def without_own(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of messages without those of Tarry's own topics: a list for who is no administrator."""
    return rows.filter(pc.invert(in_own_topics(rows.column("topic"))))
