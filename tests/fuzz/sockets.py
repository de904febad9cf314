"""Bytes that are nearly right, on a connection of their own: HTTP/2 frames, and commands of RocketMQ's old protocol."""

from __future__ import annotations

import json
import random
import socket

from loopgrpc.frames import PREFACE, settings
from tarry.fronts.rocketmq.classic.codes import RequestCode
from tarry.fronts.rocketmq.classic.frames import Command, encode
from tarry.fronts.rocketmq.common.stubs import service as s
from tarry.fronts.rocketmq.v5.service import NAME
from tests.fuzz.mutation import mutated, mutated_fields
from tests.loopgrpc.wire import call
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
        return f"frames {sent.hex()}: {_exchange(self._port, sent)}"


class Classic:
    """Each command of the classic protocol, with mutated fields, or mutated bytes."""

    def __init__(self, address: str) -> None:
        self._port = int(address.rpartition(":")[2])
        subscription = {"topic": "t", "subString": "*", "expressionType": "TAG"}
        heartbeat = {"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [subscription]}]}
        self._bodies = (b"x", b"", json.dumps(heartbeat).encode())
        common = {"topic": "t", "consumerGroup": "g", "group": "g", "queueId": "0", "queueOffset": "0", "offset": "0"}
        pull = {
            "maxMsgNums": "32",
            "sysFlag": "6",
            "commitOffset": "0",
            "suspendTimeoutMillis": "1",
            "subscription": "*",
        }
        self._fields = (
            {name: str(value) for name, value in send_fields("t", TAGS="a", DELAY="1").items()},
            {**common, **pull, "subVersion": "0", "expressionType": "TAG"},
            {**common, "producerGroup": "p", "commitOrRollback": "8", "tranStateTableOffset": "1", "msgId": "m"},
        )

    def command(self, rng: random.Random) -> str:
        fields = rng.choice(self._fields)
        if rng.random() < 0.6:
            fields = {name: str(value) for name, value in mutated_fields(fields, rng).items()}
        code = int(rng.choice(list(RequestCode))) if rng.random() < 0.95 else rng.randrange(-(1 << 31), 1 << 31)
        sent = encode(Command(code, fields, rng.choice(self._bodies), rng.randrange(1 << 20), rng.choice([0, 0, 1, 2])))
        if rng.random() < 0.5:
            sent = mutated(sent, rng)
        return f"command {sent.hex()}: {_exchange(self._port, sent)}"


def _exchange(port: int, sent: bytes) -> str:
    with socket.create_connection(("127.0.0.1", port), CONNECT_S) as connection:
        connection.settimeout(READ_S)
        answered = "no answer"
        try:
            connection.sendall(sent)
            while connection.recv(65_536):
                answered = "answered"
        except TimeoutError:
            return answered
        except OSError:
            pass
        return f"{answered}, closed"
