"""Occurrences of EventBridge Scheduler's schedules in a queue: their keys and their bodies.

A body may name attributes of the occurrence (``<aws.scheduler.scheduled-time>``). All occurrences of a series are the
same message, so they are put in when one is handed out. The property :data:`TEMPLATE` says that there are some.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

from tarry.repeat import read_state, spread_ms

OCCURRENCES = "aws.scheduler/"
"""Keys of occurrences begin so; then come the schedule's group and name."""
TEMPLATE = "sqs/template"
"""Property of a body with attributes: time of the occurrence, UTC milliseconds, or :data:`OF_SERIES`."""
OF_SERIES = "series"
TIME, EXECUTION, ATTEMPT = (f"<aws.scheduler.{name}>" for name in ("scheduled-time", "execution-id", "attempt-number"))
_EXECUTIONS = uuid.UUID("1c7ac3d2-52b5-4d1b-9c4f-0f6f0f6a9a1e")


def is_template(body: str) -> bool:
    """Return whether a body names attributes of its occurrence."""
    return any(name in body for name in (TIME, EXECUTION, ATTEMPT))


def filled(body: bytes, properties: dict[str, str], repeat: str | None, due_ms: int, message_id: str) -> bytes:
    """Return a body with its attributes put in; :data:`TEMPLATE` is taken out of the properties.

    ``repeat``: the state of the series. Somebody else may have made the property: then the body stays as it is.
    """
    at_ms = _time_of(properties.pop(TEMPLATE), repeat, due_ms)
    if at_ms is None:
        return body
    values: Mapping[str, str] = {
        TIME: datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        EXECUTION: str(uuid.uuid5(_EXECUTIONS, message_id)),
        ATTEMPT: "1",
    }
    for name, value in values.items():
        body = body.replace(name.encode(), value.encode())
    return body


def _time_of(text: str, repeat: str | None, due_ms: int) -> int | None:
    if text == OF_SERIES and repeat is not None:
        state = read_state(repeat)
        return due_ms - spread_ms(state.repeat, state.n)
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 15 else None
