"""Questions: operations, and the replacement of a message under a key.

All of them may wait for the disk, so they are answered in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from tarry.api.audit import AskedBy
from tarry.api.local import AnyBroker
from tarry.api.operation import Action, Operation, Rows
from tarry.api.operation import known as known_as
from tarry.api.operations import OPERATIONS
from tarry.api.operations.queues import HasRange
from tarry.api.outcome import Outcome
from tarry.api.parsing import from_json
from tarry.api.wire import decode_json, decode_request, encode_json
from tarry.base.errors import InvalidArgumentError
from tarry.fronts.kit.known_errors import known
from tarry.fronts.link.flow import Flow
from tarry.fronts.link.link_session import Handlers
from tarry.fronts.link.outgoing import Outgoing
from tarry.fronts.link.shared import Shared
from tarry.link.frames import FrameKind, decode_batch, encode_batch, error_frame, frame, split_number
from tarry.link.ranges import first_part
from tarry.message.columns import stream_bytes
from tarry.message.schema import UNNUMBERED

_KINDS: dict[str, type[Operation[Any]]] = {o.wire.name: o for o in OPERATIONS}

Check = Callable[[Operation[Any]], None]
"""Refuses an operation that the other side must not ask for."""
SeenAs = Callable[[str], AnyBroker]
"""Returns the broker as the identity of that name sees it."""


class Questions:
    """The questions of one connection. On the loop's thread."""

    def __init__(
        self,
        shared: Shared,
        out: Outgoing,
        kinds: Collection[FrameKind],
        check: Check,
        flow: Flow | None = None,
        seen_as: SeenAs | None = None,
    ) -> None:
        """Answer frames of these kinds.

        ``flow`` counts those under way; None: the other side asks one after the other. ``seen_as``: the other side is
        trusted to say for whom it asks; None: it is not.
        """
        self._shared, self._out, self._check, self._flow = shared, out, check, flow
        self._seen_as = seen_as
        self.handlers: Handlers = {kind: self._handler(kind) for kind in kinds}

    def _handler(self, kind: FrameKind) -> Callable[[int, memoryview], None]:
        def ask(number: int, payload: memoryview) -> None:
            end = None if self._flow is None else self._flow.begin(len(payload), is_call=True)

            def done(answered: asyncio.Future[Any]) -> None:
                answer = [] if answered.cancelled() else answered.result()
                if isinstance(answer, Operation):
                    reading = self._shared.threads.reading
                    self._shared.loop.run_in_executor(reading, self._read, number, answer).add_done_callback(done)
                    return
                if kind == FrameKind.CALL:
                    self._shared.groups.look()  # its changes are announced to all before it is answered
                self._out.hold(sum(map(len, answer)))
                self._out.write(answer)
                if end is not None:
                    end()

            # A copy: the frames that arrived with it need not stay in memory for as long.
            copied = memoryview(bytes(payload))
            self._shared.run_in_thread(self._answer, kind, number, copied).add_done_callback(done)

        return ask

    def _answer(self, kind: FrameKind, number: int, payload: memoryview) -> list[Any] | Operation[Any]:
        """Return the frame that answers a question, or a client's operation that reads rows. Never raises.

        In a thread of the pool.
        """

        def answer() -> list[Any] | Operation[Any]:
            if kind != FrameKind.CALL:
                return _ANSWERS[kind](self._shared.broker, number, payload)
            broker, operation, asked = self._asked(payload)
            if self._flow is not None and isinstance(operation.wire, Rows):
                return operation
            return _call(broker, number, operation, asked)

        return _answered(number, answer)

    def _asked(self, payload: memoryview) -> tuple[AnyBroker, Operation[Any], AskedBy | None]:
        """Return the operation that is called for, if it may be asked, and the broker as who asks sees it.

        And who that is, where another process has found it out.
        """
        values, broker = decode_request(payload), self._shared.broker
        name = values.pop("op", None) if isinstance(values, dict) else None
        if not isinstance(name, str) or name not in _KINDS:
            raise InvalidArgumentError(f"op is {name!r:.80}; allowed: {', '.join(_KINDS)}")
        if self._seen_as is not None and "as" in values:
            broker = self._seen_as(str(values.pop("as")))
        by = values.pop("by", None) if self._seen_as is not None else None
        operation = from_json(_KINDS[name], values)
        self._check(operation)
        _check_range(operation)
        return broker, operation, None if by is None else known_as(AskedBy, by)

    def _read(self, number: int, operation: Operation[Any]) -> list[Any]:
        """Return the frame that answers a client's operation with rows. Never raises. In a thread."""

        def answer() -> list[Any]:
            self._out.check_room()  # other answers may have come between
            return _call(self._shared.broker, number, operation)

        return _answered(number, answer)


A = TypeVar("A")


def _answered(number: int, answer: Callable[[], A]) -> A | list[Any]:
    """Return an answer, or that it is refused."""
    try:
        return answer()
    except Exception as error:  # noqa: BLE001  every error goes to the other side, and bugs to the log
        return error_frame(number, known(error))


def _call(broker: AnyBroker, number: int, operation: Operation[Any], asked: AskedBy | None = None) -> list[Any]:
    result = broker.call(operation) if asked is None else broker.call_by(operation, asked)
    wire = operation.wire
    if isinstance(wire, Action):
        return frame(FrameKind.RESULT, number, encode_json(wire.codec.encode(result)))
    assert isinstance(wire, Rows)
    schema, batches = wire.encode(result)
    part = batches if wire.goes_on_by is None else first_part(batches)
    return frame(FrameKind.ROWS, number, stream_bytes(schema, part))


def _check_range(operation: Operation[Any]) -> None:
    wire = operation.wire
    if isinstance(wire, Rows) and wire.range_max is not None and isinstance(operation, HasRange):
        length = operation.end - operation.start
        if length > wire.range_max:
            raise InvalidArgumentError(
                f"{wire.name} of {length} from {operation.start}; allowed by the link: {wire.range_max} at a time"
            )


def _find_keyed(broker: AnyBroker, number: int, payload: memoryview) -> list[Any]:
    """Return the pending message under a key, or what became of it."""
    match decode_json(bytes(payload)):
        case [str(topic), str(key)]:
            found = broker.find_keyed(topic, key)
        case other:
            raise InvalidArgumentError(f"{other!r:.80}; allowed: a topic and a key")
    if isinstance(found, Outcome):
        return _outcome(number, found)
    return frame(FrameKind.ROWS, number, encode_batch(found))


def _replace(broker: AnyBroker, number: int, payload: memoryview) -> list[Any]:
    """Replace the message of a seq under a key."""
    length, rest = split_number(payload)
    match decode_json(bytes(rest[:length])):
        case [str(topic), str(key), int(seq)]:
            successor = decode_batch(rest[length:], UNNUMBERED)
        case other:
            raise InvalidArgumentError(f"{other!r:.80}; allowed: a topic, a key and a seq")
    if successor.num_rows != 1:
        raise InvalidArgumentError(f"{successor.num_rows} messages; allowed: one")
    return _outcome(number, broker.replace_keyed(topic, key, seq, successor))


def _outcome(number: int, outcome: Outcome) -> list[Any]:
    return frame(FrameKind.RESULT, number, encode_json({"outcome": outcome}))


_ANSWERS: dict[FrameKind, Callable[[AnyBroker, int, memoryview], list[Any]]] = {
    FrameKind.FIND_KEYED: _find_keyed,
    FrameKind.REPLACE: _replace,
}
