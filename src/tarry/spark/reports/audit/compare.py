"""An independent check of accepted against delivered messages, without asking a broker.

Rows of both ledgers are put into one DataFrame and grouped by the identity of their message: one shuffle, no join, and
only examples come to the driver. :func:`combine` makes one row of each message, :func:`judge` decides its outcome,
:func:`audit` counts. The rules:

- Rows of one id are one message: a producer's retries, and reschedules. The due time accepted last counts.
- Each group gets each message: a duplicate is a second hand-out to the same group, lateness that of the first.
- A message is lost when it was due by the end of the observation, was neither cancelled nor expired, and was never
  handed out. Messages due later are pending.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypedDict

from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from tarry.base.errors import InvalidArgumentError
from tarry.message.dead_topics import PREFIX
from tarry.spark.reports.audit import count as counting
from tarry.spark.reports.audit.ledgers import accepted_of, delivered_of, identity
from tarry.spark.reports.audit.result import UNITS_MS, Audit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame

UNIT_SPANS_MS = {"second": 300_000, "minute": 6 * 3_600_000, "hour": 45 * 86_400_000}
"""Longest span of the ledgers for which each unit is the default; for longer ones, days."""


def audit(
    accepted: DataFrame,
    delivered: DataFrame,
    *,
    accepted_columns: Mapping[str, str] | None = None,
    delivered_columns: Mapping[str, str] | None = None,
    by: str | None = None,
    until_ms: float | None = None,
    skew_ms: int = 0,
    grace_ms: int = 0,
    every_group: bool = False,
    unit: str | None = None,
    examples: int = 10,
    late_max_ms: int | None = None,
) -> Audit:
    """Compare two ledgers.

    Args:
        accepted: a row for each message that was accepted; columns as :func:`accepted_of` finds them.
        delivered: a row for each time that a message was handed out; columns as :func:`delivered_of` finds them.
        accepted_columns, delivered_columns: which column is for what, where names do not say it.
        by: "seq" or "id"; what identifies a message in both ledgers. Default: seq where both have it.
        until_ms: the end of the observation: what is due later is pending. Default: the latest moment in the ledgers.
        skew_ms: how much the clocks of producer, broker and consumer may differ: so much early is not early.
        grace_ms: a message is lost when it is missing so long after its due time; for ledgers that are being written.
        every_group: whether a message that one group of its topic had must have been handed to each of them.
        unit: "second", "minute", "hour" or "day" of UTC. Default: by the span of the ledgers.
        examples: how many messages of each failure are named.
        late_max_ms: a first hand-out that is later than so long after the due time is a failure. Default: none is.

    Raises:
        InvalidArgumentError: names the argument, or the ledger's column, and what is allowed; or a ledger of which
            most rows have no identity, or no time that can be read.
    """
    _check(skew_ms, grace_ms, unit, examples)
    if late_max_ms is not None and late_max_ms < 0:
        raise InvalidArgumentError(f"late_max_ms is {late_max_ms}; allowed: 0 or more, or None (no limit)")
    sent, got = accepted_of(accepted, accepted_columns), delivered_of(delivered, delivered_columns)
    by = identity(sent, got, by)
    sent, got = identified(sent, by), identified(got, by)
    survey = counting.survey(sent, got)
    survey.check()
    until = survey.latest_ms if until_ms is None else until_ms
    if until is None:
        raise InvalidArgumentError("the ledgers have no moment that could be the end of the observation: say until")
    rules: _Rules = {"until_ms": until, "skew_ms": skew_ms, "grace_ms": grace_ms, "every_group": every_group}
    check_ids = by == "seq" and survey.has_ids
    combined = combine(sent, without_dead_letters(got), topics=by == "id" and survey.has_topics)
    with _kept(combined, needed=check_ids) as messages:
        if check_ids:
            messages = _with_known_ids(messages, sent)
        with _kept(judge(messages, **rules)) as judged:
            return counting.count(
                judged,
                survey=survey,
                unit_of=lambda span_ms: unit or _unit_of(span_ms),
                examples=examples,
                late_max_ms=late_max_ms,
                by=by,
                **rules,
            )


class _Rules(TypedDict):
    until_ms: float
    skew_ms: int
    grace_ms: int
    every_group: bool


def identified(ledger: DataFrame, by: str) -> DataFrame:
    """Add ``ident``: the seq, or the id.

    A message without an id gets it from its seq, as the broker does.
    """
    if by == "seq":
        return ledger.withColumn("ident", F.col("seq").cast("string"))
    derived = F.lpad(F.lower(F.hex(F.col("seq").cast("long"))), 16, "0")
    return ledger.withColumn("ident", F.coalesce(F.col("id").cast("string"), derived))


def without_dead_letters(delivered: DataFrame) -> DataFrame:
    """Leave out hand-outs from topics of dead letters.

    These are copies, which were never accepted as messages.
    """
    return delivered.where(~F.coalesce(F.col("topic").cast("string").startswith(PREFIX), F.lit(False)))


_EXTREMES: dict[str, tuple[str, bool, str]] = {
    "due_min_ms": ("min", True, "due_ms"),
    "due_max_ms": ("max", True, "due_ms"),
    "accepted_ms": ("min", True, "accepted_ms"),
    "cancelled_ms": ("max", True, "cancelled_ms"),
    "id_min": ("min", True, "id"),
    "id_max": ("max", True, "id"),
    "got_due_min": ("min", False, "got_due_ms"),
    "got_due_max": ("max", False, "got_due_ms"),
    "got_id_min": ("min", False, "id"),
    "got_id_max": ("max", False, "id"),
    "first_ms": ("min", False, "delivered_ms"),
}
"""The lowest or highest value of a column over a message's sent rows, or its handed-out ones."""


def combine(accepted: DataFrame, delivered: DataFrame, *, topics: bool) -> DataFrame:
    """Return a row for each message of both ledgers.

    It has the accepted values (``due_ms`` and so on, of the last row), and ``groups`` with the hand-outs to each group.
    ``topics``: true if ids of different topics are different messages.
    """
    # No constant instead of the topic: the optimizer would drop it from the keys, and shuffle once more.
    key = ["topic_key", "ident"] if topics else ["ident"]
    rows = _row(accepted, sent=True).unionByName(_row(delivered, sent=False)).where("ident IS NOT NULL")
    rows = rows.withColumn("topic_key", F.coalesce("topic", F.lit("")))
    # Grouped twice with one shuffle: rows that are together for a message are together for each group of it.
    by_group = rows.repartition(*key).groupBy(*key, "group").agg(*_of_group(F.col("sent")))
    handed = F.struct(F.coalesce("group", F.lit("")).alias("group"), "handouts", "first_ms", "retried")
    return by_group.groupBy(*key).agg(
        *(getattr(F, extreme)(name).alias(name) for name, (extreme, _, _) in _EXTREMES.items()),
        *(F.max(name).alias(name) for name in ("last", "answered")),
        *(F.sum(name).alias(name) for name in ("accepted_rows", "handouts", "retried")),
        F.coalesce(F.max("topic"), F.min("got_topic"), F.lit("")).alias("topic"),
        (F.max("topic") != F.max("got_topic")).alias("other_topic"),
        F.collect_list(F.when(F.col("handouts") > 0, handed)).alias("groups"),
    )


def _of_group(sent: Column) -> list[Column]:
    """Return the aggregates of a message's rows for one group; the sent rows have none."""
    last = F.struct("accepted_ms", "due_ms", "cancelled_ms", "expire_ms", "answered")
    extremes = [
        getattr(F, extreme)(F.when(sent if of_sent else ~sent, F.col(column))).alias(name)
        for name, (extreme, of_sent, column) in _EXTREMES.items()
    ]
    return [
        *extremes,
        F.sum(sent.cast("long")).alias("accepted_rows"),
        F.max(F.when(sent & F.col("due_ms").isNotNull(), last)).alias("last"),
        F.max(F.when(sent, F.coalesce("answered", F.lit(True)))).alias("answered"),
        F.sum((~sent).cast("long")).alias("handouts"),
        F.sum((~sent & (F.col("attempt") > 1)).cast("long")).alias("retried"),
        F.max(F.when(sent, F.col("topic"))).alias("topic"),
        F.min(F.when(~sent, F.col("topic"))).alias("got_topic"),
    ]


def _row(ledger: DataFrame, *, sent: bool) -> DataFrame:
    """Return the columns of both ledgers, in their types; null for those that this one lacks."""
    renamed = {"got_due_ms": None if sent else "due_ms", "due_ms": "due_ms" if sent else None}
    types = {
        **dict.fromkeys(("topic", "ident", "id", "group"), "string"),
        **dict.fromkeys(("due_ms", "accepted_ms", "cancelled_ms", "expire_ms", "got_due_ms", "attempt"), "long"),
        "delivered_ms": "double",
        "answered": "boolean",
    }
    columns = []
    for name, kind in types.items():
        source = renamed.get(name, name)
        value = F.col(source) if source is not None and source in ledger.columns else F.lit(None)
        columns.append(value.cast(kind).alias(name))
    readable = "ident IS NOT NULL" if sent else "ident IS NOT NULL AND delivered_ms IS NOT NULL"
    return ledger.where(readable).select(*columns, F.lit(sent).alias("sent"))


def _with_known_ids(messages: DataFrame, accepted: DataFrame) -> DataFrame:
    """Add ``known_id``: true if a message delivered under an unknown seq has an id that was accepted.

    A producer without an answer sends again; if both were accepted, it got only the seq of the second.
    """
    if messages.where("accepted_rows = 0").isEmpty():
        return messages
    unaccepted = messages.where("accepted_rows = 0").select(F.col("topic").alias("t"), F.col("got_id_min").alias("i"))
    sent = accepted.select(F.coalesce("topic", F.lit("")).alias("topic"), "id")
    # Only the accepted rows with such an id, which are few: a broadcast, as a rule.
    named = sent.join(
        unaccepted.distinct(), (F.col("id") == F.col("i")) & ((F.col("topic") == F.col("t")) | (F.col("topic") == "")),
        "left_semi",
    ).select(F.col("id").alias("sent_id")).distinct()  # fmt: skip
    joined = messages.join(named, (F.col("accepted_rows") == 0) & (F.col("got_id_min") == F.col("sent_id")), "left")
    return joined.withColumn("known_id", F.col("sent_id").isNotNull()).drop("sent_id")


def judge(
    messages: DataFrame, *, until_ms: float, skew_ms: int = 0, grace_ms: int = 0, every_group: bool = False
) -> DataFrame:
    """Return the outcome of each message of :func:`combine`.

    It is a boolean column for each count in :class:`tarry.spark.reports.audit.result.Counts` that counts messages.
    """
    due, accepted = F.col("last.due_ms"), F.col("accepted_rows") > 0
    was_due = due <= F.lit(float(until_ms)) - F.lit(grace_ms + skew_ms)
    expired = F.coalesce(F.col("last.expire_ms") <= F.lit(float(until_ms)), F.lit(False))
    known_id = F.col("known_id") if "known_id" in messages.columns else F.lit(False)
    flags = {
        **_flags_of_time(was_due, expired),
        **_flags_of_identity(known_id),
        "early": accepted & (F.col("first_ms") < due - F.lit(skew_ms)),
    }
    judged = messages.select(
        *("topic", "ident", "accepted_rows", "accepted_ms", "handouts", "retried", "first_ms", "groups"),
        F.coalesce("id_min", "got_id_min").alias("id"),
        F.coalesce(due, F.when(~accepted, F.col("got_due_min"))).alias("due_ms"),
        *(F.col(name) for name in ("got_due_min", "got_id_min", "cancelled_ms")),
        *(_any(flag).alias(name) for name, flag in flags.items()),
        _any(was_due).alias("was_due"),
        F.when(F.col("handouts") > 0, F.col("handouts") - F.size("groups")).otherwise(0).alias("duplicated"),
    )
    return _with_missed(judged) if every_group else judged.withColumn("missed", F.lit(False))


def _flags_of_time(was_due: Column, expired: Column) -> dict[str, Column]:
    """Return the flags on delivery: whether a message came, and whether it had to."""
    accepted, delivered, cancelled = F.col("accepted_rows") > 0, F.col("handouts") > 0, _cancelled()
    sure = accepted & F.col("answered")
    waiting = sure & ~delivered & ~cancelled & F.col("last.due_ms").isNotNull()
    return {
        "accepted": sure,
        "rescheduled": accepted & (F.col("due_min_ms") != F.col("due_max_ms")),
        "delivered": sure & delivered,
        "lost": waiting & was_due & ~expired,
        "pending": waiting & ~was_due & ~expired,
        "expired": waiting & expired,
        "cancelled": sure & ~delivered & cancelled,
        "cancelled_delivered": accepted & delivered & cancelled,
    }


def _flags_of_identity(known_id: Column) -> dict[str, Column]:
    """Return the flags on identity: whether the delivered message equals the sent one."""
    accepted, delivered, due = F.col("accepted_rows") > 0, F.col("handouts") > 0, F.col("last.due_ms")
    sure = accepted & F.col("answered")
    other_due = F.col("got_due_min").isNotNull() & ((F.col("got_due_min") != due) | (F.col("got_due_max") != due))
    other_id = _any(
        F.col("id_min") != F.col("id_max"),
        F.col("got_id_min") != F.col("got_id_max"),
        F.col("id_min") != F.col("got_id_min"),
        F.col("other_topic"),
    )
    return {
        "foreign": ~accepted & ~known_id,
        "unanswered": accepted & ~sure & ~delivered,
        "unanswered_delivered": (accepted & ~sure & delivered) | (~accepted & known_id),
        "due_changed": accepted & delivered & other_due,
        "mixed_up": accepted & delivered & other_id,
    }


def _any(*conditions: Column) -> Column:
    """Return whether one of the conditions holds; null counts as false."""
    result = F.lit(False)
    for condition in conditions:
        result = result | F.coalesce(condition, F.lit(False))
    return result


def _cancelled() -> Column:
    """Return whether a message was cancelled for good.

    A reschedule cancels the former due time, and accepts the new one later or at the same instant.
    """
    after = F.col("cancelled_ms") > F.coalesce(F.col("last.accepted_ms"), F.lit(-(1 << 62)))
    return _any(F.col("last.cancelled_ms").isNotNull(), after)


def _with_missed(judged: DataFrame) -> DataFrame:
    every = judged.select("topic", F.explode("groups.group").alias("group")).groupBy("topic")
    every = every.agg(F.count_distinct("group").alias("groups_count"))
    joined = judged.join(every, "topic", "left")
    return joined.withColumn(
        "missed", _any(F.col("delivered") & F.col("was_due") & (F.size("groups") < F.col("groups_count")))
    )


@contextmanager
def _kept(frame: DataFrame, *, needed: bool = True) -> Iterator[DataFrame]:
    """Persist a frame while it is counted in several ways, on disk if memory is short."""
    from pyspark import StorageLevel

    if not needed:
        yield frame
        return
    frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()


def _unit_of(span_ms: float) -> str:
    return next((unit for unit, most in UNIT_SPANS_MS.items() if span_ms <= most), "day")


def _check(skew_ms: int, grace_ms: int, unit: str | None, examples: int) -> None:
    for name, value in (("skew_ms", skew_ms), ("grace_ms", grace_ms), ("examples", examples)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidArgumentError(f"{name} is {value!r:.80}; allowed: 0 or more")
    if unit is not None and unit not in UNITS_MS:
        raise InvalidArgumentError(f"unit is {unit!r:.80}; allowed: {', '.join(UNITS_MS)}")
