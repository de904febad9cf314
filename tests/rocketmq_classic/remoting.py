"""A client of raw commands: what official clients never send, and what they cannot show."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from tarry.fronts.rocketmq.classic.codes import RequestCode
from tarry.fronts.rocketmq.classic.frames import JSON, RemotingCommand, decode, encode
from tarry.fronts.rocketmq.classic.message_bytes import decode_properties

WAIT_S = 15.0
_FRONT = struct.Struct(">iiiiiqqiq")


class Remoting:
    """One connection. Not for several threads."""

    def __init__(self, port: int, *, form: int = JSON, sock: socket.socket | None = None) -> None:
        self.socket = sock or socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.form = form
        self._opaque = 0
        self._answers: dict[int, RemotingCommand] = {}
        self.asked: list[RemotingCommand] = []
        """What the broker asked of this client."""

    def close(self) -> None:
        self.socket.close()

    def begin(self, code: int, fields: Mapping[str, Any] | None = None, body: bytes = b"", flag: int = 0) -> int:
        """Send a request; its number."""
        self._opaque += 1
        texts = {name: str(value) for name, value in (fields or {}).items()}
        self.socket.sendall(encode(RemotingCommand(code, texts, body, self._opaque, flag, form=self.form)))
        return self._opaque

    def finish(self, opaque: int) -> RemotingCommand:
        """The answer to a request."""
        while opaque not in self._answers:
            self._take(self.read())
        return self._answers.pop(opaque)

    def ask(self, code: int, fields: Mapping[str, Any] | None = None, body: bytes = b"") -> RemotingCommand:
        return self.finish(self.begin(code, fields, body))

    def next_question(self) -> RemotingCommand:
        """The next request of the broker's."""
        while not self.asked:
            self._take(self.read())
        return self.asked.pop(0)

    def read(self) -> RemotingCommand:
        """The next frame."""
        length = struct.unpack(">i", self._read(4))[0]
        return decode(struct.pack(">i", length) + self._read(length))

    def is_closed(self) -> bool:
        """Whether the broker closes the connection, for which this waits."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            pass
        return True

    # -- what clients do -----------------------------------------------------------------------------------------------

    def send(self, topic: str, body: bytes = b"x", *, flag: int = 0, **properties: str) -> RemotingCommand:
        """SEND_MESSAGE_V2."""
        return self.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic, flag=flag, **properties), body)

    def heartbeat(
        self, client: str, group: str, *topics: str, expression: str = "*", kind: str = "TAG"
    ) -> RemotingCommand:
        subscriptions = [{"topic": t, "subString": expression, "expressionType": kind} for t in topics]
        consumer = {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": subscriptions,
        }  # fmt: skip
        body = {"clientID": client, "consumerDataSet": [consumer], "producerDataSet": []}
        return self.ask(RequestCode.HEART_BEAT, body=json.dumps(body).encode())

    def begin_pull(self, topic: str, group: str, offset: int, wait_s: float = 5, **more: Any) -> int:
        fields = {
            "consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32,
            "sysFlag": 2 | 4, "commitOffset": 0, "suspendTimeoutMillis": int(wait_s * 1000), "subscription": "*",
            "subVersion": 0, "expressionType": "TAG",
        }  # fmt: skip
        return self.begin(RequestCode.PULL_MESSAGE, fields | more)

    def pull(self, topic: str, group: str, offset: int, wait_s: float = 5, **more: Any) -> RemotingCommand:
        return self.finish(self.begin_pull(topic, group, offset, wait_s, **more))

    def pull_until(self, count: int, topic: str, group: str, **more: Any) -> list[dict[str, Any]]:
        """As many messages, from the beginning, however many pulls it takes."""
        messages: list[dict[str, Any]] = []
        offset, end = 0, time.monotonic() + WAIT_S
        while len(messages) < count:
            assert time.monotonic() < end, messages
            answer = self.pull(topic, group, offset, **more)
            messages += messages_of(answer.body)
            offset = int(answer.fields["nextBeginOffset"])
        return messages

    def _take(self, command: RemotingCommand) -> None:
        if command.is_response:
            self._answers[command.opaque] = command
        else:
            self.asked.append(command)

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(size - len(parts))
            if not part:
                raise ConnectionResetError("the broker has closed the connection")
            parts += part
        return bytes(parts)


def send_fields(topic: str, *, flag: int = 0, **properties: str) -> dict[str, Any]:
    """Of SEND_MESSAGE_V2."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return {
        "a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000, "h": flag,
        "i": text, "j": 0, "k": "false", "m": "false",
    }  # fmt: skip


def send_back(client: Remoting, message: dict[str, Any], level: int, retries: int = 16, **more: Any) -> int:
    """CONSUMER_SEND_MSG_BACK of a message that was pulled; the answer's code."""
    fields = {
        "offset": message["physical"], "group": "g", "delayLevel": level, "originTopic": "orders",
        "originMsgId": "x", "unitMode": "false", "maxReconsumeTimes": retries,
    }  # fmt: skip
    return client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields | more).code


def queue_count(client: Remoting, topic: str) -> int:
    """How many queues a topic's route has."""
    [queue] = json.loads(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).body)["queueDatas"]
    return int(queue["readQueueNums"])


def dead_letters(client: Remoting, group: str, reader: str = "undertakers") -> list[dict[str, Any]]:
    """What a group has in all queues of its dead letters."""
    topic = f"%DLQ%{group}"
    answers = [client.pull(topic, reader, 0, 0, queueId=queue) for queue in range(queue_count(client, topic))]
    return [message for answer in answers for message in messages_of(answer.body)]


def messages_of(body: bytes) -> list[dict[str, Any]]:
    """The messages of a pull, read by the format's description rather than by the code under test."""
    messages = []
    while body:
        length, _, _, queue, flag, offset, physical, system, born_ms = _FRONT.unpack_from(body)
        place = _FRONT.size + (20 if system & 16 else 8)
        (stored_ms,) = struct.unpack_from(">q", body, place)
        place += 8 + (20 if system & 32 else 8)
        times, _, size = struct.unpack_from(">iqi", body, place)
        place += 16
        content = body[place : place + size]
        place += size
        topic = body[place + 1 : place + 1 + body[place]].decode()
        place += 1 + body[place]
        (properties_size,) = struct.unpack_from(">h", body, place)
        properties = decode_properties(body[place + 2 : place + 2 + properties_size].decode())
        assert place + 2 + properties_size == length
        messages.append(
            {
                "topic": topic, "body": content, "properties": properties, "offset": offset, "physical": physical,
                "flag": flag, "system": system, "queue": queue, "times": times, "born_ms": born_ms,
                "stored_ms": stored_ms,
            }
        )  # fmt: skip
        body = body[length:]
    return messages
