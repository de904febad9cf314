"""The history of one message, from the ledgers of an audit: also when the broker no longer has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from tarry.api.views import Event, History
from tarry.spark.reports.audit.compare import identified
from tarry.spark.reports.audit.ledgers import accepted_of, delivered_of, identity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_MAX = 1000
"""Rows of one message, in each ledger."""
_NOT_IN_LEDGERS = "What is in neither ledger: when it fell due, and whether a consumer acknowledged it."


def history(
    accepted: DataFrame,
    delivered: DataFrame,
    ident: str,
    *,
    topic: str | None = None,
    accepted_columns: Mapping[str, str] | None = None,
    delivered_columns: Mapping[str, str] | None = None,
    by: str | None = None,
) -> History:
    """Return the rows of one message in both ledgers, in the order of time.

    Args:
        ident: its id, or its seq, as :func:`tarry.spark.reports.audit.audit` identifies messages (``by``).
        topic: only of this topic.

    Raises:
        InvalidArgumentError: as :func:`tarry.spark.reports.audit.audit`.
    """
    sent, got = accepted_of(accepted, accepted_columns), delivered_of(delivered, delivered_columns)
    by = identity(sent, got, by)
    both = [_rows(identified(ledger, by), ident, topic) for ledger in (sent, got)]
    events = [event for row in both[0] for event in _accepted(row)] + [_delivered(row) for row in both[1]]
    unknown = [_NOT_IN_LEDGERS] if events else [f"Neither ledger has a message with the {by} {ident!r:.80}."]
    for name, rows in zip(("accepted", "delivered"), both, strict=True):
        if len(rows) == ROWS_MAX:
            unknown.append(
                f"There may be more than {ROWS_MAX} rows of it in the {name} ledger: the others are left out."
            )
    return History(ident, sorted(events, key=lambda e: (e.at_ms is None, e.at_ms or 0)), unknown)


def _rows(ledger: DataFrame, ident: str, topic: str | None) -> list[dict[str, Any]]:
    rows = ledger.where(F.col("ident") == F.lit(ident))
    if topic is not None:
        rows = rows.where(F.col("topic") == F.lit(topic))
    return [row.asDict() for row in rows.limit(ROWS_MAX).collect()]


def _accepted(row: dict[str, Any]) -> list[Event]:
    details = _without(row, ("accepted_ms", "cancelled_ms", "expire_ms", "seq", "ident"))
    events = [] if row["due_ms"] is None else [Event(row["accepted_ms"], "accepted", row["seq"], details)]
    if row["due_ms"] is not None:
        events.append(Event(row["due_ms"], "due", row["seq"]))
    for column, name in (("cancelled_ms", "cancelled"), ("expire_ms", "expired")):
        if row[column] is not None:
            events.append(Event(row[column], name, row["seq"]))
    return events


def _delivered(row: dict[str, Any]) -> Event:
    return Event(row["delivered_ms"], "delivered", row["seq"], _without(row, ("delivered_ms", "seq", "ident")))


def _without(row: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names and value is not None}
