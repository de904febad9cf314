"""Bytes that are nearly right, on a connection of their own: HTTP/2, RocketMQ's old protocol, MQTT."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Sequence

from loopgrpc.frames import PREFACE, settings
from tarry.fronts.mqtt.packets import V3, V5
from tarry.fronts.mqtt.wire import USER, properties_bytes, text_bytes
from tarry.fronts.rocketmq.classic.batches import BatchEntry, encode_batch
from tarry.fronts.rocketmq.classic.codes import RequestCode
from tarry.fronts.rocketmq.classic.frames import BINARY, JSON, RemotingCommand, encode
from tarry.fronts.rocketmq.common.stubs import service as s
from tarry.fronts.rocketmq.v5.service import NAME
from tests.fuzz.mutation import mutated, mutated_fields
from tests.loopgrpc.wire import call
from tests.mqtt import place as mqtt
from tests.rocketmq import rpc
from tests.rocketmq_classic.remoting import send_fields

CONNECT_S = 5.0
READ_S = 0.05
"""An answer to nearly valid bytes may never come."""


class Http2:
    """The frames of two good calls, mutated."""

    def __init__(self, address: str) -> None:
        self._port = int(address.rpartition(":")[2])
        request = s.QueryRouteRequest(topic=rpc.res("t")).SerializeToString()
        self._good = b"".join(call(stream, request, path=f"/{NAME}/QueryRoute") for stream in (1, 3))

    def frames(self, rng: random.Random) -> str:
        if rng.random() < 0.8:
            sent = PREFACE + settings({}) + mutated(self._good, rng)
        else:
            sent = mutated(PREFACE + self._good, rng)
        return f"frames {sent.hex()}: {exchange(self._port, [sent])}"


class Classic:
    """The classic protocol: commands with mutated fields or bytes, alone, and several on a connection that has said who
    it is.
    """

    def __init__(self, address: str) -> None:
        self._port = int(address.rpartition(":")[2])
        subscription = {"topic": "t", "subString": "*", "expressionType": "TAG"}
        self._heartbeat = json.dumps(
            {
                "clientID": "c",
                "producerDataSet": [{"groupName": "p"}],
                "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [subscription]}],
            }
        ).encode()
        locks = {"clientId": "c", "consumerGroup": "g", "mqSet": [{"topic": "t", "brokerName": "tarry", "queueId": 0}]}
        entry = BatchEntry(body=b"x", flag=0, properties={"KEYS": "k"})
        self._bodies = (b"x", b"", self._heartbeat, json.dumps(locks).encode(), encode_batch([entry, entry]))
        common = {"topic": "t", "consumerGroup": "g", "group": "g", "queueId": "0", "queueOffset": "0", "offset": "0"}
        pull = {"maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "1"}
        pull |= {"subscription": "*", "subVersion": "0", "expressionType": "TAG"}
        admin = {"readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG"}
        undo = {"originMsgId": "m", "delayLevel": "3", "maxReconsumeTimes": "2", "timestamp": "1", "isForce": "true"}
        self._fields = (
            {name: str(value) for name, value in send_fields("t", TAGS="a", DELAY="1").items()},
            common | pull,
            {**common, "producerGroup": "p", "commitOrRollback": "8", "tranStateTableOffset": "1", "msgId": "m"},
            common | admin | undo,
        )

    def command(self, rng: random.Random) -> str:
        sent = self._drawn(rng)
        return f"command {sent.hex()}: {exchange(self._port, [sent])}"

    def conversation(self, rng: random.Random) -> str:
        form = rng.choice([JSON, BINARY])
        begun = encode(RemotingCommand(int(RequestCode.HEART_BEAT), {}, self._heartbeat, 1, form=form))
        sent = [begun, *(self._drawn(rng) for _ in range(rng.randint(2, 8)))]
        return f"conversation {[part.hex() for part in sent]}: {exchange(self._port, sent)}"

    def _drawn(self, rng: random.Random) -> bytes:
        fields = rng.choice(self._fields)
        if rng.random() < 0.6:
            fields = {name: str(value) for name, value in mutated_fields(fields, rng).items()}
        code = int(rng.choice(list(RequestCode))) if rng.random() < 0.95 else rng.randrange(-(1 << 15), 1 << 15)
        body = rng.choice(self._bodies)
        if rng.random() < 0.3:
            body = mutated(body, rng)
        opaque, flag, form = rng.randrange(1 << 20), rng.choice([0, 0, 1, 2]), rng.choice([JSON, BINARY])
        sent = encode(RemotingCommand(code, fields, body, opaque, flag, form=form))
        return mutated(sent, rng) if rng.random() < 0.4 else sent


class MqttBytes:
    """MQTT's packets, mutated, behind a good CONNECT or without one."""

    def __init__(self, address: str) -> None:
        self._port = int(address.rpartition(":")[2])
        will = properties_bytes({"will_delay_s": 1}) + text_bytes("w") + text_bytes("gone")
        said = [("tarry.delay_ms", "5"), ("tarry.key", "k"), ("a", "b")]
        self._connects = [mqtt.connect(V5, flags=0x0C, rest=will), mqtt.connect(V3), mqtt.connect(V5, clean=False)]
        self._good = [
            *(mqtt.publish("$delayed/1/t", version=version, qos=qos) for version in (V3, V5) for qos in (0, 1)),
            mqtt.publish("t", properties={USER: said, "message_expiry_s": 9, "correlation_data": b"c"}),
            *(mqtt.subscribe(filter, version=version) for version in (V3, V5) for filter in ("t", "$share/g/t")),
            *(mqtt.unsubscribe("t"), mqtt.ack(1), mqtt.ack(1, 0x80), b"\xc0\0", b"\xe0\0"),
        ]

    def conversation(self, rng: random.Random) -> str:
        connect = rng.choice(self._connects)
        sent = [mutated(connect, rng) if rng.random() < 0.2 else connect]
        for packet in rng.choices(self._good, k=rng.randint(1, 6)):
            sent.append(mutated(packet, rng) if rng.random() < 0.5 else packet)
        return f"mqtt {[part.hex() for part in sent]}: {exchange(self._port, sent)}"


def exchange(port: int, sent: Sequence[bytes]) -> str:
    """Send one after the other, each when the one before was answered, or is not to be."""
    with socket.create_connection(("127.0.0.1", port), CONNECT_S) as connection:
        connection.settimeout(READ_S)
        answered = "no answer"
        for part in sent:
            try:
                connection.sendall(part)
                if not connection.recv(65_536):
                    return f"{answered}, closed"
                answered = "answered"
            except TimeoutError:
                continue
            except OSError:
                return f"{answered}, closed"
        try:
            while connection.recv(65_536):
                answered = "answered"
        except TimeoutError:
            return answered
        except OSError:
            pass
        return f"{answered}, closed"
