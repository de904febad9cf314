"""The methods of ``apache.rocketmq.v2.MessagingService``, and the answers of refused calls.

Every call is refused in the protocol's own way: an answer whose status has a code. gRPC's own statuses are used only
for calls that are none of this service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from loopgrpc import Bidi, Call, GrpcError, Handler, Promise, ServerStream, StatusCode, Unary
from tarry.base.errors import TarryError
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.stubs import service
from tarry.fronts.rocketmq.v5.authentication import Authenticator, CallingClient
from tarry.fronts.rocketmq.v5.statuses import refused, status_of

NAME = "apache.rocketmq.v2.MessagingService"
_READY = (Promise, bytes)

MessageMethod = Callable[[CallingClient, Any], Any]
"""Answers a request with a protobuf message, or an awaitable of one."""
BytesMethod = Callable[[CallingClient, Any, Call], Promise | Awaitable[bytes]]
"""Answers a request with bytes: one message, or several if they are :class:`loopgrpc.Framed`.

A promise that it returns is kept when the call is refused, too.
"""
StreamMethod = Callable[[CallingClient, Any, Call], AsyncIterator[bytes]]
"""Answers a request with several messages, one by one."""
DialogMethod = Callable[[CallingClient, AsyncIterator[bytes]], AsyncIterator[bytes]]
"""Answers a stream with a stream."""


@dataclass(frozen=True, slots=True)
class Service:
    """The methods, by name and kind.

    ``promise_methods``: those whose request is answered with several messages.
    """

    authenticator: Authenticator
    message_methods: Mapping[str, MessageMethod]
    bytes_methods: Mapping[str, BytesMethod]
    promise_methods: Mapping[str, BytesMethod]
    stream_methods: Mapping[str, StreamMethod]
    telemetry: DialogMethod

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers for the gRPC server, by path."""
        handlers: dict[str, Handler] = {f"/{NAME}/Telemetry": Bidi(self._handle_telemetry)}
        for name, method in self.message_methods.items():
            handlers[f"/{NAME}/{name}"] = Unary(self._of_message_method(name, method))
        for name, bytes_method in self.bytes_methods.items():
            handlers[f"/{NAME}/{name}"] = Unary(self._of_bytes_method(name, bytes_method))
        for name, promise_method in self.promise_methods.items():
            handlers[f"/{NAME}/{name}"] = ServerStream(self._of_bytes_method(name, promise_method))
        for name, stream_method in self.stream_methods.items():
            handlers[f"/{NAME}/{name}"] = ServerStream(self._of_stream_method(name, stream_method))
        return handlers

    def _of_message_method(self, name: str, method: MessageMethod) -> Callable[[bytes, Call], Any]:
        async def awaited(result: Awaitable[Any]) -> bytes:
            return _packed(await result)

        def call(caller: CallingClient, request: Any, _: Call) -> Any:
            result = method(caller, request)
            return awaited(result) if isinstance(result, Awaitable) else _packed(result)

        return self._of_bytes_method(name, call)

    def _of_bytes_method(
        self, name: str, method: Callable[[CallingClient, Any, Call], Any]
    ) -> Callable[[bytes, Call], Any]:
        kind, answer = _kinds(name)
        authenticate = self.authenticator.authenticate

        async def later(result: Awaitable[bytes]) -> bytes:
            try:
                return await result
            except Exception as error:  # noqa: BLE001  whatever it is, the client gets an answer
                return refused(answer, error, name)

        def call(data: bytes, call: Call) -> Any:
            try:
                result = method(authenticate(call), _read(kind, data), call)
            except Exception as error:  # noqa: BLE001  as above
                return refused(answer, error, name)
            return result if isinstance(result, _READY) else later(result)

        return call

    def _of_stream_method(self, name: str, method: StreamMethod) -> Callable[[bytes, Call], AsyncIterator[bytes]]:
        kind, answer = _kinds(name)

        async def call(data: bytes, call: Call) -> AsyncIterator[bytes]:
            answers: AsyncIterator[bytes] | None = None
            try:
                answers = method(self.authenticator.authenticate(call), _read(kind, data), call)
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
            caller = self.authenticator.authenticate(call)
        except (Refusal, TarryError) as error:
            refusal = error if isinstance(error, Refusal) else Refusal.of(error)
            yield service.TelemetryCommand(status=status_of(refusal)).SerializeToString()
            kind = StatusCode.UNAUTHENTICATED if refusal.code == Code.UNAUTHORIZED else StatusCode.INVALID_ARGUMENT
            raise GrpcError(kind, refusal.text) from refusal
        async for command in self.telemetry(caller, commands):
            yield command


def _packed(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _kinds(name: str) -> tuple[Any, Any]:
    return getattr(service, f"{name}Request"), getattr(service, f"{name}Response")


def _read(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise Refusal(Code.BAD_REQUEST, f"the request's {len(data)} bytes are no {kind.DESCRIPTOR.name}") from error
