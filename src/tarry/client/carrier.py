"""Carries operations to a broker: as actions with a JSON answer, or as tickets answered by rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, cast

from tarry.api.operation import Action, Operation, decoded
from tarry.api.operations import Cancel, CancelJob, CancelKeys
from tarry.api.operations.messages import HANDLES_MAX
from tarry.api.outcome import Outcome
from tarry.api.wire import JSON_BYTES_MAX, encode_json
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.client.connection import BrokerConnection
from tarry.message import handle as handles

R = TypeVar("R")

JOB_TIMEOUT_S = 600.0
"""To count what is pending of a job takes a second for some ten million messages."""
_KEYS_BYTES_MAX = JSON_BYTES_MAX - (64 << 10)
"""Of the keys in a request; the rest of it is small."""
_PLACE = re.compile(r"^handle (\d+): ")


class Carrier:
    """Any thread. A call waits for its answer for up to ``timeout_s`` seconds."""

    def __init__(self, connection: BrokerConnection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    def call(self, operation: Operation[R]) -> R:
        """Have the broker carry an operation out; its result.

        Raises:
            TarryError: what the broker refused it with. UnavailableError: there was no answer.
        """
        result: Any
        if isinstance(operation, Cancel):
            result = self._cancel(operation)
        elif isinstance(operation, CancelKeys):
            result = [
                o
                for keys in _parts(operation.keys)
                for o in self._outcomes(CancelKeys(operation.topic, keys), len(keys))
            ]
        else:
            result = self._call(operation)
        return cast(R, result)

    def _call(self, operation: Operation[Any]) -> Any:
        wire = operation.wire
        timeout_s = max(self._timeout_s, JOB_TIMEOUT_S) if isinstance(operation, CancelJob) else self._timeout_s
        if isinstance(wire, Action):
            answer = self._connection.action(wire.name, operation.to_wire() or None, timeout_s=timeout_s)
            return decoded(lambda: wire.codec.decode(answer), answer)
        table = self._connection.read({"op": wire.name, **operation.to_wire()}, timeout_s=timeout_s)
        return decoded(lambda: wire.decode(table), table)

    def _cancel(self, operation: Cancel) -> list[Outcome]:
        """Cancel any number of handles, in as few requests as their limit of handles allows."""
        if len(operation.handles) > HANDLES_MAX:
            # What can be seen here is refused before the first of them.
            for place, text in enumerate(operation.handles):
                try:
                    handles.decode(text)
                except InvalidArgumentError as error:
                    raise type(error)(f"handle {place}: {error}") from None
        outcomes: list[Outcome] = []
        for start in range(0, len(operation.handles), HANDLES_MAX):
            part = operation.handles[start : start + HANDLES_MAX]
            try:
                outcomes += self._outcomes(Cancel(part), len(part))
            except InvalidArgumentError as error:
                raise _of_place(error, start) from None
        return outcomes

    def _outcomes(self, operation: Operation[list[Outcome]], count: int) -> list[Outcome]:
        outcomes: list[Outcome] = self._call(operation)
        if len(outcomes) != count:
            raise TarryError(f"the broker gave {len(outcomes)} answers to {count} questions")
        return outcomes


def _parts(keys: Sequence[str]) -> Iterator[list[str]]:
    """Keys in as few requests as their limits of keys and of bytes allow."""
    part: list[str] = []
    size = 0
    for key in keys:
        bytes_of_key = len(encode_json(key)) + 1
        if part and (len(part) == HANDLES_MAX or size + bytes_of_key > _KEYS_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(key)
        size += bytes_of_key
    if part:
        yield part


def _of_place(error: InvalidArgumentError, start: int) -> InvalidArgumentError:
    """Return ``error`` with a handle's place among all; it names one in the part that begins at ``start``."""
    error.args = (_PLACE.sub(lambda match: f"handle {int(match[1]) + start}: ", str(error)),)
    return error
