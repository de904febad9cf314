"""Carries operations to a broker: as actions with a JSON answer, or as tickets answered by rows."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from tarry.api.operation import Action, Operation, Rows, decoded
from tarry.api.operations import Cancel, CancelJob, CancelKeys
from tarry.api.operations.messages import HANDLES_MAX
from tarry.api.outcome import Outcome
from tarry.api.wire import JSON_BYTES_MAX, decode_json, encode_json
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.client.connection import BrokerConnection, encoded
from tarry.client.questions import Question
from tarry.link.frames import FrameKind, decode_rows
from tarry.message import handle as handles

R = TypeVar("R")

JOB_TIMEOUT_S = 600.0
"""To count what is pending of a job takes a second for some ten million messages."""
_KEYS_BYTES_MAX = JSON_BYTES_MAX - (64 << 10)
"""Of the keys in a request; the rest of it is small."""
_PLACE = re.compile(r"^handle (\d+): ")


Steps: TypeAlias = Generator[Operation[Any], Any, Any]
"""Yields operations that fit into a request, is sent their results, and returns that of the whole."""


class Carrier:
    """Any thread, any loop. A request waits for its answer for up to ``timeout_s`` seconds."""

    def __init__(self, connection: BrokerConnection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    def call(self, operation: Operation[R]) -> R:
        """Have the broker carry an operation out, and wait in this thread; its result.

        Raises:
            TarryError: what the broker refused it with. UnavailableError: there was no answer.
        """
        steps = _steps(operation)
        try:
            step = next(steps)
            while True:
                try:
                    result = _result(step, self._question(step).wait(self._patience_s(step)))
                except TarryError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return cast(R, end.value)

    async def call_async(self, operation: Operation[R]) -> R:
        """:meth:`call`, to be awaited."""
        steps = _steps(operation)
        try:
            step = next(steps)
            while True:
                try:
                    result = _result(step, await self._question(step).answer(self._patience_s(step)))
                except TarryError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return cast(R, end.value)

    def _question(self, operation: Operation[Any]) -> Question:
        request = encoded({"op": operation.wire.name, **operation.to_wire()})
        return self._connection.question(FrameKind.CALL, request)

    def _patience_s(self, operation: Operation[Any]) -> float:
        return max(self._timeout_s, JOB_TIMEOUT_S) if isinstance(operation, CancelJob) else self._timeout_s


def _result(operation: Operation[R], answer: memoryview) -> R:
    wire: Action[R] | Rows[R] = operation.wire
    if isinstance(wire, Action):
        plain = decode_json(bytes(answer))
        return decoded(lambda: wire.codec.decode(plain), plain)
    table = decode_rows(answer)
    return decoded(lambda: wire.decode(table), table)


def _steps(operation: Operation[Any]) -> Steps:
    if isinstance(operation, Cancel):
        return (yield from _cancel(operation))
    if isinstance(operation, CancelKeys):
        outcomes: list[Outcome] = []
        for keys in _parts(operation.keys):
            outcomes += yield from _outcomes(CancelKeys(operation.topic, keys), len(keys))
        return outcomes
    return (yield operation)


def _cancel(operation: Cancel) -> Steps:
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
            outcomes += yield from _outcomes(Cancel(part), len(part))
        except InvalidArgumentError as error:
            raise _of_place(error, start) from None
    return outcomes


def _outcomes(operation: Operation[list[Outcome]], count: int) -> Steps:
    outcomes: list[Outcome] = yield operation
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
