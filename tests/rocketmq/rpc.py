"""A client of raw calls: what official clients never send, and what they cannot show."""

from __future__ import annotations

import hmac
import threading
import time
import uuid
from collections.abc import Iterator
from hashlib import sha1
from queue import Queue
from typing import Any

import grpc

from tarry.fronts.rocketmq.common.stubs import definition as d
from tarry.fronts.rocketmq.common.stubs import service as s
from tarry.fronts.rocketmq.v5.service import NAME

Code = d.Code


def _same(data: bytes) -> bytes:
    return data


class Rpc:
    """One client by its id. Answers are whole messages; streams are lists."""

    def __init__(
        self,
        port: int,
        client_id: str | None = None,
        *,
        space: str = "",
        headers: dict[str, str] | None = None,
        shared: bool = True,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        # Channels of one process share a connection, if they are not told otherwise.
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 0 if shared else 1)]
        if credentials is None:
            self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
        else:
            self.channel = grpc.secure_channel(f"localhost:{port}", credentials, options=options)
        self.id = client_id or uuid.uuid4().hex
        given = {"x-mq-client-id": self.id, "x-mq-language": "PYTHON", "x-mq-namespace": space} | (headers or {})
        self.metadata = tuple(given.items())

    def close(self) -> None:
        """Hang up, saying nothing."""
        self.channel.close()

    def raw(self, method: str, data: bytes, timeout: float = 10) -> bytes:
        """Any bytes to any unary method."""
        call = self.channel.unary_unary(f"/{NAME}/{method}", _same, _same)
        answer: bytes = call(data, metadata=self.metadata, timeout=timeout)
        return answer

    def ask(self, method: str, request: Any, timeout: float = 10) -> Any:
        """A unary call."""
        kind = getattr(s, f"{method}Response")
        return kind.FromString(self.raw(method, request.SerializeToString(), timeout))

    def stream(self, method: str, request: Any, timeout: float = 30) -> Any:
        """A call that is answered with a stream; iterate over it, or cancel it."""
        kind = getattr(s, f"{method}Response")
        call = self.channel.unary_stream(f"/{NAME}/{method}", type(request).SerializeToString, kind.FromString)
        return call(request, metadata=self.metadata, timeout=timeout)

    def send(self, topic: str, body: bytes = b"x", **system: Any) -> Any:
        """One message; the answer's only entry."""
        answer = self.ask("SendMessage", s.SendMessageRequest(messages=[message(topic, body, **system)]))
        return answer.entries[0] if answer.entries else answer

    def receive(self, topic: str, group: str, most: int = 32, wait_s: float = 5, **more: Any) -> list[Any]:
        """Messages; raises :class:`RefusedError` for another status than OK and "no message"."""
        call = self.stream("ReceiveMessage", receive_request(topic, group, most, wait_s, **more))
        found = []
        for answer in call:
            if answer.HasField("status") and answer.status.code not in (Code.OK, Code.MESSAGE_NOT_FOUND):
                raise RefusedError(answer.status)
            if answer.HasField("message"):
                found.append(answer.message)
        return found

    def ack(self, topic: str, group: str, *messages: Any) -> Any:
        """AckMessage."""
        return self.ask("AckMessage", ack_request(topic, group, *messages))

    def change(self, topic: str, group: str, handle: str, ms: int) -> Any:
        """ChangeInvisibleDuration."""
        request = s.ChangeInvisibleDurationRequest(topic=res(topic), group=res(group), receipt_handle=handle)
        request.invisible_duration.FromMilliseconds(ms)
        return self.ask("ChangeInvisibleDuration", request)

    def end(self, topic: str, sent: Any, resolution: int) -> Any:
        """EndTransaction; its status' code."""
        request = s.EndTransactionRequest(
            topic=res(topic), message_id=sent.message_id, transaction_id=sent.transaction_id, resolution=resolution
        )
        return self.ask("EndTransaction", request).status.code

    def telemetry(self, settings: Any) -> Telemetry:
        """A stream that has said ``settings``."""
        return Telemetry(self, settings)


class RefusedError(Exception):
    """An answer's status was not OK."""

    def __init__(self, status: Any) -> None:
        super().__init__(f"{status.code}: {status.message}")
        self.code = status.code


class Telemetry:
    """A client's stream; what comes is in ``commands``."""

    def __init__(self, rpc: Rpc, settings: Any) -> None:
        self._out: Queue[Any] = Queue()
        self.commands: Queue[Any] = Queue()
        call = rpc.channel.stream_stream(
            f"/{NAME}/Telemetry", s.TelemetryCommand.SerializeToString, s.TelemetryCommand.FromString
        )
        self.call = call(self._sent(), metadata=rpc.metadata)
        self._out.put(s.TelemetryCommand(settings=settings))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def say(self, settings: Any) -> None:
        """Send settings again."""
        self._out.put(s.TelemetryCommand(settings=settings))

    def next(self, timeout: float = 10) -> Any:
        """The next command."""
        return self.commands.get(timeout=timeout)

    def close(self) -> None:
        """End our side, and wait for the other."""
        self._out.put(None)
        self._reader.join(10)

    def _sent(self) -> Iterator[Any]:
        while (command := self._out.get()) is not None:
            yield command

    def _read(self) -> None:
        try:
            for command in self.call:
                self.commands.put(command)
        except grpc.RpcError as error:
            self.commands.put(error)


def res(name: str, space: str = "") -> Any:
    """A resource."""
    return d.Resource(resource_namespace=space, name=name)


def message(topic: str, body: bytes = b"x", **system: Any) -> Any:
    """A message; ``due_ms``, ``properties``, and any system property."""
    due_ms, properties = system.pop("due_ms", None), system.pop("properties", None)
    space = system.pop("space", "")
    system.setdefault("message_id", uuid.uuid4().hex.upper())
    system.setdefault("message_type", d.MessageType.NORMAL if due_ms is None else d.MessageType.DELAY)
    system.setdefault("body_encoding", d.Encoding.IDENTITY)
    found = d.Message(topic=res(topic, space), body=body, user_properties=properties, system_properties=system)
    if due_ms is not None:
        found.system_properties.delivery_timestamp.FromMilliseconds(due_ms)
    return found


def receive_request(topic: str, group: str, most: int = 32, wait_s: float = 5, **more: Any) -> Any:
    """``filter``, ``sql``, ``invisible_ms``, ``push``, ``attempt_id``, ``queue``, ``number``."""
    request = s.ReceiveMessageRequest(
        group=res(group), batch_size=most, auto_renew=more.get("push", False), attempt_id=more.get("attempt_id")
    )
    request.message_queue.topic.CopyFrom(res(topic))
    request.message_queue.broker.name = more.get("queue", "tarry")
    request.message_queue.id = more.get("number", 0)
    kind = d.FilterType.SQL if "sql" in more else d.FilterType.TAG
    request.filter_expression.CopyFrom(
        d.FilterExpression(type=kind, expression=more.get("sql") or more.get("filter", "*"))
    )
    request.long_polling_timeout.FromMilliseconds(int(wait_s * 1000))
    if not request.auto_renew:
        request.invisible_duration.FromMilliseconds(more.get("invisible_ms", 30_000))
    return request


def ack_request(topic: str, group: str, *messages: Any) -> Any:
    """Of messages as they were received."""
    entries = [
        s.AckMessageEntry(message_id=m.system_properties.message_id, receipt_handle=m.system_properties.receipt_handle)
        for m in messages
    ]
    return s.AckMessageRequest(topic=res(topic), group=res(group), entries=entries)


def producer(*topics: str) -> Any:
    """Settings of a producer."""
    settings = d.Settings(client_type=d.ClientType.PRODUCER)
    settings.publishing.topics.extend(res(topic) for topic in topics)
    return settings


def consumer(group: str, *topics: str, kind: int = d.ClientType.PUSH_CONSUMER) -> Any:
    """Settings of a consumer."""
    settings = d.Settings(client_type=kind)
    settings.subscription.group.CopyFrom(res(group))
    settings.subscription.subscriptions.extend(d.SubscriptionEntry(topic=res(topic)) for topic in topics)
    return settings


def signed(key: str, secret: str, moment: str = "") -> dict[str, str]:
    """The headers of a client with these credentials; ``moment``: empty is now."""
    moment = moment or time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    signature = hmac.new(secret.encode(), moment.encode(), sha1).hexdigest().upper()
    return {
        "x-mq-date-time": moment,
        "authorization": f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}",
    }


def now_ms() -> int:
    """The machine's clock, which the broker of these tests has, too: what is tried is real waiting."""
    return time.time_ns() // 1_000_000
