"""``apache.rocketmq.v2.MessagingService``: which call goes where, and what each kind of refusal is answered with.

Every call is refused in the protocol's own way: an answer whose status has a code. gRPC's own statuses are left to what
is no call of this service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from loopgrpc import Bidi, Call, GrpcError, Handler, Promise, ServerStream, StatusCode, Unary
from tarry.fronts.rocketmq.caller import Caller, Gate
from tarry.fronts.rocketmq.refusal import Code, Refusal, refused
from tarry.fronts.rocketmq.stubs import service

NAME = "apache.rocketmq.v2.MessagingService"

One = Callable[[Caller, Any], Any]
"""Answers a request with a message, or an awaitable of one."""
Raw = Callable[[Caller, Any, Call], Promise | Awaitable[bytes]]
"""The same, of which the answer is bytes already."""
Many = Callable[[Caller, Any, Call], AsyncIterator[bytes]]
Piece = Callable[[Caller, Any, Call], Promise]
"""Answers with several messages, mostly in one piece; refusals, once it has begun, are among them."""
Both = Callable[[Caller, AsyncIterator[bytes]], AsyncIterator[bytes]]


class Service:
    """The methods, by name."""

    def __init__(
        self,
        gate: Gate,
        *,
        one: Mapping[str, One],
        raw: Mapping[str, Raw],
        piece: Mapping[str, Piece],
        many: Mapping[str, Many],
        both: Both,
    ) -> None:
        self._gate = gate
        self._one, self._raw, self._piece, self._many, self._both = one, raw, piece, many, both

    def handlers(self) -> dict[str, Handler]:
        """For the gRPC server."""
        found: dict[str, Handler] = {}
        for name, method in self._one.items():
            found[f"/{NAME}/{name}"] = Unary(self._answering(name, method))
        for name, raw in self._raw.items():
            found[f"/{NAME}/{name}"] = Unary(self._passing(name, raw))
        for name, piece in self._piece.items():
            found[f"/{NAME}/{name}"] = ServerStream(self._telling(name, piece))
        for name, many in self._many.items():
            found[f"/{NAME}/{name}"] = ServerStream(self._streaming(name, many))
        found[f"/{NAME}/Telemetry"] = Bidi(self._telemetry)
        return found

    def _answering(self, name: str, method: One) -> Callable[[bytes, Call], bytes | Awaitable[bytes]]:
        kind, answer = _kinds(name)

        async def later(result: Awaitable[Any]) -> bytes:
            try:
                message: bytes = (await result).SerializeToString()
                return message
            except Exception as error:  # noqa: BLE001  whatever it is, the client is told
                return refused(answer, error, name)

        def call(data: bytes, call: Call) -> bytes | Awaitable[bytes]:
            try:
                result = method(self._gate.admit(call), _read(kind, data))
                if isinstance(result, Awaitable):
                    return later(result)
                message: bytes = result.SerializeToString()
                return message
            except Exception as error:  # noqa: BLE001  as above
                return refused(answer, error, name)

        return call

    def _passing(self, name: str, method: Raw) -> Callable[[bytes, Call], bytes | Promise | Awaitable[bytes]]:
        kind, answer = _kinds(name)

        async def later(result: Awaitable[bytes]) -> bytes:
            try:
                return await result
            except Exception as error:  # noqa: BLE001  as above
                return refused(answer, error, name)

        def call(data: bytes, call: Call) -> bytes | Promise | Awaitable[bytes]:
            try:
                result = method(self._gate.admit(call), _read(kind, data), call)
            except Exception as error:  # noqa: BLE001  as above
                return refused(answer, error, name)
            # What was promised tells refusals, too.
            return result if isinstance(result, Promise) else later(result)

        return call

    def _telling(self, name: str, method: Piece) -> Callable[[bytes, Call], bytes | Promise]:
        kind, answer = _kinds(name)

        def call(data: bytes, call: Call) -> bytes | Promise:
            try:
                return method(self._gate.admit(call), _read(kind, data), call)
            except Exception as error:  # noqa: BLE001  as above
                return refused(answer, error, name)

        return call

    def _streaming(self, name: str, method: Many) -> Callable[[bytes, Call], AsyncIterator[bytes]]:
        kind, answer = _kinds(name)

        async def call(data: bytes, call: Call) -> AsyncIterator[bytes]:
            answers: AsyncIterator[bytes] | None = None
            try:
                answers = method(self._gate.admit(call), _read(kind, data), call)
                async for message in answers:
                    yield message
            except Exception as error:  # noqa: BLE001  as above
                yield refused(answer, error, name)
            finally:
                close = getattr(answers, "aclose", None)
                if close is not None:
                    await close()

        return call

    async def _telemetry(self, commands: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        try:
            caller = self._gate.admit(call)
        except Refusal as refusal:
            yield service.TelemetryCommand(status=refusal.status()).SerializeToString()
            kind = StatusCode.UNAUTHENTICATED if refusal.code == Code.UNAUTHORIZED else StatusCode.INVALID_ARGUMENT
            raise GrpcError(kind, refusal.text) from refusal
        async for command in self._both(caller, commands):
            yield command


def _kinds(name: str) -> tuple[Any, Any]:
    return getattr(service, f"{name}Request"), getattr(service, f"{name}Response")


def _read(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise Refusal(Code.BAD_REQUEST, f"the request's {len(data)} bytes are no {kind.DESCRIPTOR.name}") from error
