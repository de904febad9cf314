"""The rows that a schedule is: its definition, and its next occurrence in its queue's topic.

What is taken away is first replaced, in the batch that makes the change: by a row that is due far ahead and cancelled
right after. So a change is all there or not at all, and a crash before the cancelling leaves a row that says nothing.
"""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import blake2b, sha256
from typing import Any, NamedTuple

import pyarrow as pa

from tarry.base.delay import format_ms
from tarry.base.errors import InvalidArgumentError
from tarry.fronts.http.scheduler.definition import Definition
from tarry.fronts.http.scheduler.errors import invalid
from tarry.fronts.http.scheduler.names import TOPIC, definition_key, occurrence_key
from tarry.fronts.http.sqs import message_attributes as kept
from tarry.fronts.http.sqs.names import ACCOUNT
from tarry.fronts.http.sqs.queue_attributes import Queue
from tarry.fronts.http.sqs.scheduled import EXECUTION, OF_SERIES, TEMPLATE, TIME, is_template
from tarry.message.rows import Row, with_cells
from tarry.repeat import LAST_MS, Repeat, first_due, read_state, spread_ms, to_json

ARN = "<aws.scheduler.schedule-arn>"
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
_SEEDS = (1 << 53) - 1


def definition_row(definition: Definition, now_ms: int, delay_ms_max: int) -> Row:
    """Return the row that keeps a schedule.

    It comes again once a year, which nobody sees, so that it is pending for ever; or it is due at the schedule's
    completion, and with that gone.
    """
    end_ms = completion_ms(definition, now_ms)
    every_ms = min(YEAR_MS, delay_ms_max)
    cells: dict[str, Any] = {"key": definition_key(definition.group, definition.name)}
    if end_ms is not None and end_ms <= now_ms + every_ms:
        due_ms = max(now_ms, end_ms)
    else:
        due_ms = now_ms + every_ms
        cells["repeat"] = to_json(Repeat(every_ms, until_ms=end_ms, missed="last"))
    return with_cells((TOPIC, definition.to_bytes(), due_ms, None, None), cells)


def completion_ms(definition: Definition, now_ms: int) -> int | None:
    """Return when a schedule deletes itself; None: it does not, or not by now."""
    if not definition.deletes_itself or not definition.is_enabled:
        return None
    at_ms = definition.expression.at_ms
    if at_ms is not None:
        return max(at_ms, now_ms) + definition.window_ms + 1
    end_ms = definition.given.get("EndDate")
    return None if end_ms is None else int(end_ms) + definition.window_ms + 1


class Unsent(NamedTuple):
    """An occurrence that waits in its queue's topic."""

    time_ms: int
    """Its due time without the spread."""
    seq: int


def unsent_of(row: pa.RecordBatch) -> Unsent:
    """Return the occurrence that one row of a queue's topic is."""
    due_ms, text, seq = (row.column(name)[0].as_py() for name in ("due_ms", "repeat", "seq"))
    if text is None:
        return Unsent(due_ms, seq)
    state = read_state(text)
    return Unsent(due_ms - spread_ms(state.repeat, state.n), seq)


def looked_from_ms(definition: Definition, former: Definition | None, unsent: Unsent | None, now_ms: int) -> int | None:
    """Return from when on the occurrences of a schedule are looked for; None: its only one was sent.

    ``former``: what it said before. ``unsent``: the occurrence that waits by that; None: there is none. With the same
    times, that one is neither sent twice nor passed over, if the broker is late.
    """
    if former is None or not former.is_enabled or not _has_same_times(former, definition):
        return now_ms
    if definition.expression.at_ms is not None:
        return None if unsent is None else now_ms
    # Whatever was due in this very millisecond was sent, or it is the one that is late.
    return now_ms + 1 if unsent is None or unsent.time_ms > now_ms else unsent.time_ms


def _has_same_times(former: Definition, definition: Definition) -> bool:
    at_ms = definition.expression.at_ms
    if at_ms is not None:
        return at_ms == former.expression.at_ms
    return former.expression == definition.expression and former.anchor_ms == definition.anchor_ms


def occurrence_row(
    definition: Definition, queue: Queue, now_ms: int, from_ms: int, delay_ms_max: int, replaced: Unsent | None = None
) -> Row | None:
    """Return the row of the first occurrence from a moment on, in a series with those after it.

    ``replaced``: the row is for the place of that one alone. None: its ``EndDate`` comes before that.

    Raises:
        SchedulerError: the queue needs a message group id, or the expression has no occurrence, or one too far ahead.
    """
    due_ms, repeat = _when(definition, from_ms)
    body = body_of(definition)
    cells: dict[str, Any] = {"key": occurrence_key(definition.group, definition.name)}
    if replaced is not None:
        cells["if_seq"] = replaced.seq
    properties: list[tuple[str, str]] = []
    if is_template(body):
        at_ms = definition.expression.at_ms
        properties.append((TEMPLATE, OF_SERIES if at_ms is None else str(at_ms)))
    order = definition.given["Target"].get("SqsParameters", {}).get("MessageGroupId")
    if order is not None:
        properties.append((kept.GROUP_ID, order))
    if queue.is_fifo:
        if order is None:
            raise invalid("The target is a FIFO queue; allowed: with SqsParameters.MessageGroupId")
        cells["order_key"] = order
        properties.append((kept.DEDUPLICATION, sha256(body.encode()).hexdigest()))
    if properties:
        cells["properties"] = properties
    if repeat is not None:
        cells["repeat"] = to_json(repeat)
    first_ms = due_ms if repeat is None else _first_ms(definition, repeat, due_ms)
    if first_ms is None:
        return None
    if first_ms - now_ms > delay_ms_max:
        raise invalid(
            f"Invalid Schedule Expression {definition.given['ScheduleExpression']}: its first time is "
            f"{(first_ms - now_ms) // DAY_MS} days ahead; allowed: {delay_ms_max // DAY_MS} days (delay_ms_max)"
        )
    cells["ttl_ms"] = max(0, first_ms - now_ms) + queue.retention_s * 1000
    return with_cells((queue.name, body.encode(), due_ms, None, None), cells)


def _first_ms(definition: Definition, repeat: Repeat, from_ms: int) -> int | None:
    unending = replace(repeat, until_ms=None)
    try:
        first_ms = first_due(unending, from_ms)
    except InvalidArgumentError:
        raise invalid(
            f"Invalid Schedule Expression {definition.given['ScheduleExpression']}: it has no time from "
            f"{format_ms(from_ms)} on; allowed: one within 50 years"
        ) from None
    ends_before = repeat.until_ms is not None and first_ms - spread_ms(unending, 1) > repeat.until_ms
    return None if ends_before else first_ms


def _when(definition: Definition, from_ms: int) -> tuple[int, Repeat | None]:
    """Return the time of the first occurrence, or from when on a rule is looked at, and the rule."""
    expression, window_ms = definition.expression, definition.window_ms
    seed = int.from_bytes(blake2b(definition_key(definition.group, definition.name).encode()).digest()[:8]) & _SEEDS
    seed = seed if window_ms else 0
    if expression.at_ms is not None:
        once = Repeat(YEAR_MS, times=1, spread_ms=window_ms, seed=seed)
        # What is past is due now.
        return max(expression.at_ms + spread_ms(once, 1), from_ms), None
    end_ms = definition.given.get("EndDate")
    rule = expression.rule(None if end_ms is None else min(int(end_ms), LAST_MS), window_ms, seed)
    start_ms = definition.anchor_ms
    if rule.every_ms is not None and start_ms < from_ms:
        start_ms += -(-(from_ms - start_ms) // rule.every_ms) * rule.every_ms
    return max(start_ms, from_ms), rule


def blank_row(topic: str, key: str, now_ms: int, delay_ms_max: int) -> Row:
    """Return the row that replaces what is pending under a key, and is cancelled then."""
    ahead_ms = min(YEAR_MS, delay_ms_max)
    return with_cells((topic, b"", now_ms + ahead_ms, None, None), {"key": key, "ttl_ms": ahead_ms + 1})


def body_of(definition: Definition) -> str:
    """Return the text that is sent: the input, or the event that AWS makes where there is none."""
    text: str = definition.given["Target"].get("Input") or json.dumps(
        {
            "version": "0",
            "id": EXECUTION,
            "detail-type": "Scheduled Event",
            "source": "aws.scheduler",
            "account": ACCOUNT,
            "time": TIME,
            "region": definition.region,
            "resources": [ARN],
            "detail": "{}",
        },
        separators=(",", ":"),
    )
    return text.replace(ARN, definition.arn)
