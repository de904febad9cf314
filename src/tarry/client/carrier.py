"""Carries operations to a broker: as actions with a JSON answer, or as tickets answered by rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tarry.api.operation import Operation
from tarry.api.operations import Cancel, CancelKeys
from tarry.api.operations.messages import HANDLES_MAX
from tarry.api.wire import JSON_BYTES_MAX, encode_json
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.client.connection import BrokerConnection
from tarry.client.encoding import encoded
from tarry.client.questions import Question
from tarry.client.way import patience_s
from tarry.link.frames import FrameKind
from tarry.link.results import decode_result
from tarry.message import handle as handles

R = TypeVar("R")

_KEYS_BYTES_MAX = JSON_BYTES_MAX - (64 << 10)
"""Of the keys in a request; the rest of it is small."""
_PLACE = re.compile(r"^handle (\d+): ")


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
        results = []
        for request in _requests(operation):
            with request.placed():
                results.append(request.result(self._ask(request).wait(patience_s(operation, self._timeout_s))))
        return _joined(operation, results)

    async def call_async(self, operation: Operation[R]) -> R:
        """:meth:`call`, to be awaited."""
        results = []
        for request in _requests(operation):
            with request.placed():
                results.append(request.result(await self._ask(request).answer(patience_s(operation, self._timeout_s))))
        return _joined(operation, results)

    def _ask(self, request: _Request) -> Question:
        operation = request.operation
        asked = encoded({"op": operation.wire.name, **operation.to_wire()})
        return self._connection.question(FrameKind.CALL, asked)


@dataclass(frozen=True, slots=True)
class _Request:
    """An operation that fits into one request, of what may be a larger one."""

    operation: Operation[Any]
    outcomes: int | None = None
    """Number of outcomes that it brings; None: its result is of another kind."""
    start: int = 0
    """Place of its first handle among all."""

    def result(self, answer: memoryview) -> Any:
        """Return the result that an answer has."""
        result = decode_result(self.operation, answer)
        if self.outcomes is not None and len(result) != self.outcomes:
            raise TarryError(f"the broker gave {len(result)} answers to {self.outcomes} questions")
        return result

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Have refusals of the block name a handle by its place among all."""
        try:
            yield
        except InvalidArgumentError as error:
            raise _of_place(error, self.start) from None


def _requests(operation: Operation[Any]) -> Iterable[_Request]:
    """Return the requests of an operation: as few as their limits of handles, keys and bytes allow."""
    if isinstance(operation, Cancel):
        every = operation.handles
        if len(every) > HANDLES_MAX:
            _check_handles(every)  # what can be seen here is refused before the first of them
        starts = range(0, len(every), HANDLES_MAX)
        parts = ((start, every[start : start + HANDLES_MAX]) for start in starts)
        return (_Request(Cancel(part), len(part), start) for start, part in parts)
    if isinstance(operation, CancelKeys):
        topic = operation.topic
        return (_Request(CancelKeys(topic, keys), len(keys)) for keys in _parts(operation.keys))
    return (_Request(operation),)


def _joined(operation: Operation[R], results: list[Any]) -> R:
    """Return the result of an operation, of those of its requests."""
    if isinstance(operation, Cancel | CancelKeys):
        return cast(R, [outcome for outcomes in results for outcome in outcomes])
    [result] = results
    return cast(R, result)


def _check_handles(every: Sequence[str]) -> None:
    for place, text in enumerate(every):
        try:
            handles.decode(text)
        except InvalidArgumentError as error:
            raise type(error)(f"handle {place}: {error}") from None


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
