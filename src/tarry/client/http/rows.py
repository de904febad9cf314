"""A message's row as the JSON of Tarry's HTTP API, and receipts of the answers."""

from __future__ import annotations

import base64
from typing import Any

from tarry.api.operations.messages import receipt_from_json
from tarry.message.options import OPTIONS, OptionKind
from tarry.message.receipt import Receipt
from tarry.message.rows import COLUMN_NAMES, Row

_NAMES = {option.column: option for option in OPTIONS}
_TIMES = ("due_ms", "delay_ms", "delay_level")


def fields_of(row: Row) -> dict[str, Any]:
    """Return the fields of a message in JSON; ``topic`` is one of them."""
    fields: dict[str, Any] = {"topic": row[0], "body_base64": base64.b64encode(row[1]).decode("ascii")}
    for name, value in zip(COLUMN_NAMES[2:], row[2:], strict=False):
        if value is None:
            continue
        if name in _TIMES:
            fields[name] = value
            continue
        option = _NAMES[name]
        match option.kind:
            case OptionKind.DURATION:
                fields[option.name] = f"{value}ms"
            case OptionKind.TEXTS:
                fields[option.name] = dict(value)
            case _:
                fields[option.name] = value
    if "delay_level" in fields:
        fields.pop("delay_ms", None)
    return fields


def receipt_of(values: Any) -> Receipt:
    """Return the receipt that an answer has.

    Raises:
        InvalidArgumentError, TypeError, KeyError: it has none.
    """
    receipt = receipt_from_json(values)
    if receipt is None:
        raise TypeError("null is no receipt")
    return receipt
