"""Results of operations, as the broker answers a CALL."""

from __future__ import annotations

from typing import TypeVar

from tarry.api.operation import Action, Operation, Rows, decoded
from tarry.api.wire import decode_json
from tarry.link.frames import decode_rows

R = TypeVar("R")


def decode_result(operation: Operation[R], answer: memoryview) -> R:
    """Decode the answer to an operation.

    Raises:
        TarryError: it cannot be read.
    """
    wire: Action[R] | Rows[R] = operation.wire
    if isinstance(wire, Action):
        plain = decode_json(bytes(answer))
        return decoded(lambda: wire.codec.decode(plain), plain)
    table = decode_rows(answer)
    return decoded(lambda: wire.decode(table), table)
