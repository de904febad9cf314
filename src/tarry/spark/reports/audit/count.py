"""The figures of an audit: every result is an aggregate of a bounded number of rows.

Percentiles are approximate by rank, to within 1/10,000 (exact for few values), and the maximum is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from tarry.base.errors import InvalidArgumentError
from tarry.message.dead_topics import PREFIX
from tarry.spark.reports.audit.result import (
    FAILURES,
    PERCENTILES,
    REMARKS,
    UNITS_MS,
    Audit,
    Counts,
    Example,
    GroupRow,
    Late,
    TopicRow,
    UnitRow,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

TOPICS_MAX = 200
GROUPS_MAX = 200
UNITS_MAX = 2000
"""The newest units are listed; the others are only counted."""
ACCURACY = 10_000
BINS_PER_DECADE = 5
LATE_MS_MIN = 0.01
_FLAGS = (
    *("accepted", "rescheduled", "delivered", "lost", "pending", "expired", "cancelled", "cancelled_delivered"),
    *("early", "foreign", "unanswered", "unanswered_delivered", "due_changed", "mixed_up", "missed"),
)
_SUMS = ("accepted_rows", "handouts", "retried", "duplicated")


@dataclass(frozen=True, slots=True)
class Survey:
    """Summary of the ledgers before the comparison. ``latest_ms``: the last moment in them."""

    latest_ms: float | None
    has_topics: bool
    has_ids: bool
    rows_accepted: int
    unread_accepted: int
    rows_delivered: int
    unread_delivered: int
    dead_letters: int

    def check(self) -> None:
        """Refuse ledgers in which most rows cannot be read: their messages would be called lost, or foreign.

        Raises:
            InvalidArgumentError: names the ledger, how many rows, and what a row needs.
        """
        for name, unread, rows, needed in (
            ("accepted", self.unread_accepted, self.rows_accepted, "due"),
            ("delivered", self.unread_delivered, self.rows_delivered, "delivered"),
        ):
            if 2 * unread > rows:
                raise InvalidArgumentError(
                    f"{unread:,} of {rows:,} rows of the {name} ledger have no identity, or no time that can be read; "
                    f"allowed: at most half of them. Each row needs a seq or an id, and {needed}_ms as milliseconds, a "
                    f"timestamp or a text such as 2026-12-01T06:00:00Z; other columns by {name}_columns "
                    f"(--{name}-column {needed}=NAME)"
                )


def survey(accepted: DataFrame, delivered: DataFrame) -> Survey:
    """Summarise both ledgers in one pass over each."""
    unread = F.col("ident").isNull() | (F.col("due_ms").isNull() & F.col("cancelled_ms").isNull())
    common = (F.count(F.col("topic")).alias("topics"), F.count(F.col("id")).alias("ids"))
    latest = F.max(F.col("accepted_ms").cast("double")).alias("latest")
    # A message whose producer had no answer has no seq; its id is enough.
    unread &= ~(F.coalesce(F.col("answered") == F.lit(False), F.lit(False)) & F.col("id").isNotNull())
    rows = F.count(F.lit(1)).alias("rows")
    sent = accepted.agg(F.count_if(unread).alias("unread"), rows, latest, *common).first()
    unread = F.col("ident").isNull() | F.col("delivered_ms").isNull()
    dead = F.count_if(F.col("topic").cast("string").startswith(PREFIX)).alias("dead")
    latest = F.max(F.col("delivered_ms").cast("double")).alias("latest")
    got = delivered.agg(
        F.count_if(unread).alias("unread"), F.count(F.lit(1)).alias("rows"), latest, dead, *common
    ).first()
    assert sent is not None
    assert got is not None
    moments = [ledger["latest"] for ledger in (sent, got) if ledger["latest"] is not None]
    return Survey(
        # If nothing was delivered, the observation lasted at least until the last message was accepted.
        got["latest"] if got["latest"] is not None else max(moments, default=None),
        bool(sent["topics"] and got["topics"]),
        bool(sent["ids"] and got["ids"]),
        sent["rows"],
        sent["unread"],
        got["rows"],
        got["unread"],
        got["dead"],
    )


def count(
    judged: DataFrame, *, survey: Survey, unit_of: Callable[[float], str], examples: int, **request: Any
) -> Audit:
    """Return the result; ``request``: the fields of :class:`Audit` that the caller has chosen."""
    earliest = F.max(F.when(F.col("early"), F.col("due_ms") - F.col("first_ms"))).alias("earliest")
    whole = judged.agg(*_sums(), *_span(), earliest).first()
    assert whole is not None
    counts = _counts(whole, survey)
    handed = _handed_out(judged)
    moments = [m for m in (whole["span_min"], whole["span_max"]) if m is not None]
    unit = unit_of(max(moments, default=0) - min(moments, default=0))
    histogram = _histogram(handed)
    units, left_out = _units(judged, handed, unit, request["until_ms"])
    topics, topics_count = _topics(judged, handed)
    late_max = request["late_max_ms"]
    over = F.count_if(F.col("late_ms") > F.lit(float("inf") if late_max is None else float(late_max))).alias("over")
    [late] = handed.agg(*_late_columns(), over).collect()
    return Audit(
        unit=unit,
        counts=counts,
        late=_late(late),
        late_over=int(late["over"]),
        early_most_ms=whole["earliest"] or 0.0,
        histogram=histogram,
        topics=topics,
        topics_count=topics_count,
        groups=_groups(judged),
        units=units,
        units_left_out=left_out,
        examples={name: _examples(judged, name, examples) for name in (*FAILURES, *REMARKS) if getattr(counts, name)},
        **request,
    )


def _sums() -> list[Column]:
    flags = [F.count_if(F.col(name)).alias(name) for name in _FLAGS]
    return [*flags, *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SUMS)]


def _span() -> tuple[Column, Column]:
    first, accepted = F.col("first_ms"), F.col("accepted_ms")
    due = F.when(F.col("accepted_rows") > 0, F.col("due_ms"))
    return F.min(F.least(first, due, accepted)).alias("span_min"), F.max(F.greatest(first, accepted)).alias("span_max")


def _counts(row: Row, survey: Survey | None) -> Counts:
    names = {f.name for f in fields(Counts)}
    counts = {name: int(value) for name, value in row.asDict().items() if name in names}
    if survey is not None:
        counts |= {"unread_accepted": survey.unread_accepted, "unread_delivered": survey.unread_delivered}
        counts |= {"dead_letters": survey.dead_letters}
    return Counts(**counts)


def _handed_out(judged: DataFrame) -> DataFrame:
    """Return the lateness of the first hand-out of each accepted message to each group.

    It is 0 for an early one, which is counted elsewhere.
    """
    each = judged.where("accepted_rows > 0 AND due_ms IS NOT NULL").select(
        "topic", "due_ms", F.explode("groups").alias("g")
    )
    late = F.greatest(F.col("g.first_ms") - F.col("due_ms"), F.lit(0.0))
    return each.select("topic", "due_ms", late.alias("late_ms"))


def _late_columns() -> list[Column]:
    shares = [share for share in PERCENTILES.values() if share < 1]
    within = F.percentile_approx("late_ms", shares, ACCURACY).alias("shares")
    return [F.count("late_ms").alias("count"), within, F.max("late_ms").alias("most")]


def _late(row: Row) -> Late:
    if not row["count"]:
        return Late()
    values = [*row["shares"], row["most"]]
    return Late(row["count"], {name: round(v, 3) for name, v in zip(PERCENTILES, values, strict=True)})


def _histogram(handed: DataFrame) -> list[tuple[float, float, int]]:
    place = F.floor(F.log10(F.greatest("late_ms", F.lit(LATE_MS_MIN))) * BINS_PER_DECADE)
    rows = handed.groupBy(place.alias("place")).count().orderBy("place").collect()
    bounds = [(10 ** (row["place"] / BINS_PER_DECADE), 10 ** ((row["place"] + 1) / BINS_PER_DECADE)) for row in rows]
    return [(low, high, row["count"]) for (low, high), row in zip(bounds, rows, strict=True)]


def _units(judged: DataFrame, handed: DataFrame, unit: str, until_ms: float) -> tuple[list[UnitRow], int]:
    size = UNITS_MS[unit]

    def of(moment: Column) -> Column:
        return (F.floor(moment / float(size)) * size).cast("long")

    def event(what: str, moment: Column, condition: Column) -> Column:
        return F.when(condition & moment.isNotNull(), F.struct(of(moment).alias("at"), F.lit(what).alias("what")))

    due, first = F.col("due_ms"), F.col("first_ms")
    events = F.array_compact(
        F.array(
            event("accepted", F.col("accepted_ms"), F.col("accepted")),
            event("due", due, F.col("accepted")),
            event("delivered", first, F.col("handouts") > 0),
            event("lost", due, F.col("lost")),
            event("early", due, F.col("early")),
        )
    )
    each = judged.select(F.explode(events).alias("e")).groupBy(F.col("e.at").alias("at"))
    names = ["accepted", "due", "delivered", "lost", "early"]
    counted = each.agg(*(F.count_if(F.col("e.what") == n).alias(n) for n in names))
    # Units after the end of the observation are not part of the observed load.
    seen = counted.where(F.col("at") <= F.lit(until_ms))
    rows = {row["at"]: row for row in seen.orderBy(F.desc("at")).limit(UNITS_MAX).collect()}
    left_out = seen.count() - len(rows) if len(rows) == UNITS_MAX else 0
    lates = handed.groupBy(of(due).alias("at")).agg(*_late_columns()).orderBy(F.desc("at")).limit(UNITS_MAX).collect()
    late = {row["at"]: _late(row) for row in lates}
    moments = sorted(rows)
    if moments and (moments[-1] - moments[0]) // size < UNITS_MAX:
        moments = list(range(moments[0], moments[-1] + 1, size))  # those in which nothing happened, too
    units = []
    for at in moments:
        counts = {n: rows[at][n] if at in rows else 0 for n in names}
        units.append(UnitRow(from_ms=at, late=late.get(at, Late()), **counts))
    return units, left_out


def _topics(judged: DataFrame, handed: DataFrame) -> tuple[list[TopicRow], int]:
    by_topic = judged.groupBy("topic").agg(*_sums())
    failures = sum((F.col(name) for name in FAILURES), F.lit(0))
    chosen = by_topic.orderBy(failures.desc(), F.desc("accepted"), "topic").limit(TOPICS_MAX).collect()
    topics_count = by_topic.count() if len(chosen) == TOPICS_MAX else len(chosen)
    of_chosen = handed.where(F.col("topic").isin([row["topic"] for row in chosen]))
    late = {row["topic"]: _late(row) for row in of_chosen.groupBy("topic").agg(*_late_columns()).collect()}
    return [TopicRow(row["topic"], _counts(row, None), late.get(row["topic"], Late())) for row in chosen], topics_count


def _groups(judged: DataFrame) -> list[GroupRow]:
    each = judged.where("accepted_rows > 0").select("topic", F.explode("groups").alias("g"))
    again = F.sum(F.col("g.handouts") - 1).alias("duplicated")
    by_group = each.groupBy("topic", F.col("g.group").alias("group")).agg(F.count(F.lit(1)).alias("delivered"), again)
    # A group has missed each message that was handed out to another group, or should have been, and not to it.
    of_topic = (
        judged.where("lost OR (accepted_rows > 0 AND handouts > 0)").groupBy("topic").agg(F.count("*").alias("all"))
    )
    rows = by_group.join(of_topic, "topic").orderBy(F.desc("delivered"), "topic", "group").limit(GROUPS_MAX).collect()
    return [GroupRow(r["topic"], r["group"], r["delivered"], r["duplicated"], r["all"] - r["delivered"]) for r in rows]


def _examples(judged: DataFrame, name: str, most: int) -> list[Example]:
    flag = F.col("duplicated") > 0 if name == "duplicated" else F.col(name)
    # The worst first: the earliest, the most frequent; otherwise in the order of due times.
    order = {"early": F.col("first_ms") - F.col("due_ms"), "duplicated": F.desc("duplicated")}.get(
        name, F.col("due_ms")
    )
    rows = judged.where(flag).orderBy(order, "topic", "ident").limit(most).collect()
    return [_example(row, name) for row in rows]


def _example(row: Row, name: str) -> Example:
    notes = {
        "early": lambda: f"{row['due_ms'] - row['first_ms']:,.3f} ms early",
        "duplicated": lambda: (
            f"{row['handouts']} times, to {', '.join(sorted(g['group'] or '-' for g in row['groups']))}"
        ),
        "due_changed": lambda: f"delivered as due at {row['got_due_min']}",
        "mixed_up": lambda: f"accepted as {row['id']}, delivered as {row['got_id_min']}",
        "cancelled_delivered": lambda: f"cancelled at {row['cancelled_ms']}",
        "missed": lambda: f"had by {', '.join(sorted(g['group'] or '-' for g in row['groups']))}",
    }
    note = notes[name]() if name in notes else ""
    first = None if row["first_ms"] is None else round(row["first_ms"], 3)
    return Example(row["topic"], row["ident"], row["id"], row["due_ms"], row["accepted_ms"], first, note)
