"""Requests of clients: commands, tickets and bodies of actions as operations."""

from __future__ import annotations

from typing import Any

from tarry.api.operation import Action, Operation, Rows
from tarry.api.operations import OPERATIONS
from tarry.api.parsing import from_json
from tarry.api.wire import decode_request
from tarry.base.errors import InvalidArgumentError, MessageTooLargeError

ACTIONS = {o.wire.name: o for o in OPERATIONS if isinstance(o.wire, Action)}
TICKETS = {o.wire.name: o for o in OPERATIONS if isinstance(o.wire, Rows)}


def put_command(command: bytes) -> Any:
    """Return a descriptor's command; None: it is no JSON, so none that we know."""
    try:
        return decode_request(command)
    except MessageTooLargeError:
        raise
    except InvalidArgumentError:
        return None


def action_request(kind: type[Operation[Any]], body: bytes | memoryview) -> Operation[Any]:
    """Return the operation of a DoAction.

    Of an operation without fields, the body is not read; without a body, all fields are at their defaults.
    """
    if kind.wire_fields() == {}:
        return kind()
    values = decode_request(body) if body else None
    return from_json(kind, {} if values is None else values)


def ticket_request(raw: bytes) -> Operation[Any]:
    """Return the operation of a DoGet."""
    values = decode_request(raw)
    op = values.pop("op", None) if isinstance(values, dict) else None
    if not isinstance(op, str) or op not in TICKETS:
        raise InvalidArgumentError(f"op of a ticket is {op!r}; allowed: {', '.join(TICKETS)}")
    return from_json(TICKETS[op], values)
