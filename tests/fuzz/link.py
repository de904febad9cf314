"""The link, nearly spoken: frames with changed payloads, heads and bytes, behind a good greeting or without one."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import numpy as np

from tarry.api.operations import OPERATIONS
from tarry.link.frames import FrameKind, Pairs, Poll, SettleFrame, SettleOp, frame
from tests.fuzz.calls import random_batch
from tests.fuzz.mutation import ODD_NUMBERS, mutated, mutated_fields
from tests.fuzz.sockets import exchange
from tests.link.raw_client import HELLO, stream_of

_PAIR = np.array([1], np.int64)


class LinkBytes:
    """Several frames on a connection."""

    def __init__(self, address: str) -> None:
        self._port = int(address.rpartition(":")[2])

    def conversation(self, rng: random.Random) -> str:
        """Say several frames on one connection; return what was said, and how it ended."""
        hello = b"".join(frame(FrameKind.HELLO, 0, mutated(HELLO, rng) if rng.random() < 0.1 else HELLO))
        group = _json({"topic": "t", "group": "g"})
        sent = [hello, b"".join(frame(FrameKind.GROUP, 1, group))]
        for number in range(2, rng.randint(3, 8)):
            sent.append(self._frame(number, rng))
        return f"link {[part.hex() for part in sent]}: {exchange(self._port, sent)}"

    def _frame(self, number: int, rng: random.Random) -> bytes:
        kind, payload = self._drawn(rng)
        if rng.random() < 0.4:
            payload = mutated(payload, rng)
        if rng.random() < 0.1:
            kind = rng.randrange(256)
        whole = struct.pack("<IBI", len(payload), kind, rng.choice([number, number, 1, 0])) + payload
        return mutated(whole, rng) if rng.random() < 0.1 else whole

    def _drawn(self, rng: random.Random) -> tuple[int, bytes]:
        number = rng.choice(ODD_NUMBERS) & 0x7FFF_FFFF_FFFF_FFFF
        match rng.randrange(7):
            case 0:
                return FrameKind.SUBMIT, stream_of(random_batch(rng))
            case 1:
                fields: dict[str, Any] = {"topic": "t", "group": "g", "start": "latest", "broadcast": "b"}
                return FrameKind.GROUP, _json(mutated_fields(fields, rng))
            case 2:
                lease_ms = rng.choice([0, 1, 1_000, number])
                return FrameKind.POLL, Poll(1, rng.choice([0, 1, 9]), lease_ms, rng.choice([0, 1, 9])).encode()
            case 3:
                op, argument = rng.choice(list(SettleOp)), rng.choice([-1, 0, 1, number])
                return FrameKind.SETTLE, SettleFrame(op, 1, argument, _PAIR, _PAIR, rng.choice([None, "why"])).encode()
            case 4:
                return FrameKind.RETURN, Pairs(_PAIR, _PAIR).encode()
            case 5:
                return rng.choice([FrameKind.RENEW, FrameKind.CLOSE, FrameKind.WITHDRAW]), struct.pack("<q", number)
            case _:
                asked = rng.choice(OPERATIONS)
                fields = dict.fromkeys(asked.wire_fields() or (), "t")
                return FrameKind.CALL, _json({"op": asked.wire.name, **(mutated_fields(fields, rng) if fields else {})})


def _json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, default=repr).encode(errors="replace")
