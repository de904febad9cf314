"""``apache.rocketmq.v2.MessagingService``: which call goes where, and what each kind of refusal is answered with.

Every call is refused in the protocol's own way: an answer whose status has a code. gRPC's own statuses are left to what
is no call of this service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from loopgrpc import Bidi, Call, GrpcError, Handler, Promise, ServerStream, StatusCode, Unary
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.stubs import service
from tarry.fronts.rocketmq.v5.authentication import Authenticator, Caller
from tarry.fronts.rocketmq.v5.statuses import refused, status_of

NAME = "apache.rocketmq.v2.MessagingService"

MessageMethod = Callable[[Caller, Any], Any]
"""Answers a request with a protobuf message, or an awaitable of one."""
BytesMethod = Callable[[Caller, Any, Call], Promise | Awaitable[bytes]]
"""Answers a request with one message, as bytes already."""
StreamMethod = Callable[[Caller, Any, Call], AsyncIterator[bytes]]
"""Answers a request with several messages, one by one."""
PromiseMethod = Callable[[Caller, Any, Call], Promise]
"""Answers a request with several messages, mostly in one piece; refusals, once it has begun, are among them."""
DialogMethod = Callable[[Caller, AsyncIterator[bytes]], AsyncIterator[bytes]]
"""Answers a stream with a stream."""


class Service:
    """The methods, by name and kind."""

    def __init__(
        self,
        authenticator: Authenticator,
        *,
        message_methods: Mapping[str, MessageMethod],
        bytes_methods: Mapping[str, BytesMethod],
        promise_methods: Mapping[str, PromiseMethod],
        stream_methods: Mapping[str, StreamMethod],
        telemetry: DialogMethod,
    ) -> None:
        self._authenticator = authenticator
        self._message_methods = message_methods
        self._bytes_methods = bytes_methods
        self._promise_methods = promise_methods
        self._stream_methods = stream_methods
        self._telemetry = telemetry

    def handlers(self) -> dict[str, Handler]:
        """For the gRPC server, by path."""
        handlers: dict[str, Handler] = {}
        for name, message_method in self._message_methods.items():
            handlers[f"/{NAME}/{name}"] = Unary(self._of_message_method(name, message_method))
        for name, bytes_method in self._bytes_methods.items():
            handlers[f"/{NAME}/{name}"] = Unary(self._of_bytes_method(name, bytes_method))
        for name, promise_method in self._promise_methods.items():
            handlers[f"/{NAME}/{name}"] = ServerStream(self._of_promise_method(name, promise_method))
        for name, stream_method in self._stream_methods.items():
            handlers[f"/{NAME}/{name}"] = ServerStream(self._of_stream_method(name, stream_method))
        handlers[f"/{NAME}/Telemetry"] = Bidi(self._handle_telemetry)
        return handlers

    def _of_message_method(self, name: str, method: MessageMethod) -> Callable[[bytes, Call], bytes | Awaitable[bytes]]:
        kind, answer = _kinds(name)

        async def later(result: Awaitable[Any]) -> bytes:
            try:
                message: bytes = (await result).SerializeToString()
                return message
            except Exception as error:  # noqa: BLE001  whatever it is, the client gets an answer
                return refused(answer, error, name)

        def call(data: bytes, call: Call) -> bytes | Awaitable[bytes]:
            try:
                result = method(self._authenticator.authenticate(call), _read(kind, data))
                if isinstance(result, Awaitable):
                    return later(result)
                message: bytes = result.SerializeToString()
                return message
            except Exception as error:  # noqa: BLE001  as above
                return refused(answer, error, name)

        return call

    def _of_bytes_method(
        self, name: str, method: BytesMethod
    ) -> Callable[[bytes, Call], bytes | Promise | Awaitable[bytes]]:
        kind, answer = _kinds(name)

        async def later(result: Awaitable[bytes]) -> bytes:
            try:
                return await result
            except Exception as error:  # noqa: BLE001  as above
                return refused(answer, error, name)

        def call(data: bytes, call: Call) -> bytes | Promise | Awaitable[bytes]:
            try:
                result = method(self._authenticator.authenticate(call), _read(kind, data), call)
            except Exception as error:  # noqa: BLE001  as above
                return refused(answer, error, name)
            # A promise is kept with refusals, too.
            return result if isinstance(result, Promise) else later(result)

        return call

    def _of_promise_method(self, name: str, method: PromiseMethod) -> Callable[[bytes, Call], bytes | Promise]:
        kind, answer = _kinds(name)

        def call(data: bytes, call: Call) -> bytes | Promise:
            try:
                return method(self._authenticator.authenticate(call), _read(kind, data), call)
            except Exception as error:  # noqa: BLE001  as above
                return refused(answer, error, name)

        return call

    def _of_stream_method(self, name: str, method: StreamMethod) -> Callable[[bytes, Call], AsyncIterator[bytes]]:
        kind, answer = _kinds(name)

        async def call(data: bytes, call: Call) -> AsyncIterator[bytes]:
            answers: AsyncIterator[bytes] | None = None
            try:
                answers = method(self._authenticator.authenticate(call), _read(kind, data), call)
                async for message in answers:
                    yield message
            except Exception as error:  # noqa: BLE001  as above
                yield refused(answer, error, name)
            finally:
                close = getattr(answers, "aclose", None)
                if close is not None:
                    await close()

        return call

    async def _handle_telemetry(self, commands: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        try:
            caller = self._authenticator.authenticate(call)
        except Refusal as refusal:
            yield service.TelemetryCommand(status=status_of(refusal)).SerializeToString()
            kind = StatusCode.UNAUTHENTICATED if refusal.code == Code.UNAUTHORIZED else StatusCode.INVALID_ARGUMENT
            raise GrpcError(kind, refusal.text) from refusal
        async for command in self._telemetry(caller, commands):
            yield command


def _kinds(name: str) -> tuple[Any, Any]:
    return getattr(service, f"{name}Request"), getattr(service, f"{name}Response")


def _read(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise Refusal(Code.BAD_REQUEST, f"the request's {len(data)} bytes are no {kind.DESCRIPTOR.name}") from error
