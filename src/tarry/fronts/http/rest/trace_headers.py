"""The trace of a request, by W3C's Trace Context, becomes that of the message that it schedules.

Instrumented HTTP clients send ``traceparent`` by themselves. What is no trace context is passed over, as the standard
has it: nothing is refused for it. https://www.w3.org/TR/trace-context/#processing-model-for-working-with-trace-context
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tarry.message.rows import PLACES, Row
from tarry.message.trace_context import TRACEPARENT, TRACESTATE, parse_traceparent

STATE_CHARS_MAX = 512
"""So many have to be handed on; more may be left out."""
_PROPERTIES = PLACES["properties"]


def with_trace(row: Row, headers: Mapping[str, bytes]) -> Row:
    """Return the row of a message with the request's trace in it, unless it names one itself."""
    given = headers.get(TRACEPARENT)
    if given is None:
        return row
    parent = given.decode("latin-1").strip()
    cells: list[Any] = [*row, *(None,) * (len(PLACES) - len(row))]
    own: list[tuple[str, str]] = list(cells[_PROPERTIES] or ())
    if parse_traceparent(parent) is None or any(name == TRACEPARENT for name, _ in own):
        return row
    properties = [*own, (TRACEPARENT, parent)]
    state = headers.get(TRACESTATE, b"").decode("latin-1").strip()
    if state and len(state) <= STATE_CHARS_MAX and state.isascii() and state.isprintable():
        properties = [*(pair for pair in properties if pair[0] != TRACESTATE), (TRACESTATE, state)]
    cells[_PROPERTIES] = properties
    return cast(Row, tuple(cells))
