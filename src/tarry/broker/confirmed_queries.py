"""Queries of messages are answered by an owner that is known to be one, where machines share the logs.

Who was cut off from the store goes on from memory, and would list for ever what a successor has long delivered. So what
an answer may lack is bounded: what a successor has accepted within a lease.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tarry.api import operations as ops
from tarry.api.operation import Operation
from tarry.base.errors import UnavailableError
from tarry.log.engine import SharedLogs

QUERIES: frozenset[type[Operation[Any]]] = frozenset(
    {
        *(ops.GetPending, ops.ListPending, ops.ListDeadLetters, ops.Peek),
        *(ops.GetForecast, ops.GetHistory, ops.GetMessage, ops.FindMessage, ops.FindKey),
    }
)
"""Lists, counts, forecasts and histories of messages.

Not among them: figures, by which people see that there is no answer; settings, which seldom change.
"""

H = TypeVar("H", bound=Callable[..., Any])


def confirmed(handlers: dict[type[Operation[Any]], H], logs: SharedLogs | None) -> dict[type[Operation[Any]], Any]:
    """Return handlers of which those of queries refuse while it is not certain who owns the logs.

    ``logs``: None where nobody can take them over; then they are as they were.
    """
    if logs is None:
        return handlers
    return {kind: _confirmed(each, logs) if kind in QUERIES else each for kind, each in handlers.items()}


def _confirmed(handler: Callable[..., Any], logs: SharedLogs) -> Callable[..., Any]:
    def answer(*request: Any) -> Any:
        if not logs.is_confirmed():
            raise UnavailableError("it is not certain that this broker still owns its logs; try again")
        return handler(*request)

    return answer
