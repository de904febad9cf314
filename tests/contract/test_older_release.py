"""The last release's client and broker against today's: what each of them said, kept in ``releases``, is understood by
the other one's successor, and what that one says has all that it would read.

A new release adds its file (``tests/contract/older.py`` says how); one that nobody upgrades from any more is removed.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.contract.conftest import Served
from tests.contract.older import record
from tests.waiting import wait_until

from tarry.api.operation import Action, Request, decoded
from tarry.api.operations import OPERATIONS
from tarry.api.operations.delivery import Subscribe
from tarry.api.parsing import from_json
from tarry.api.wire import StreamOp, decode_settle
from tarry.base.errors import InvalidArgumentError
from tarry.client import Client

RELEASES = sorted(Path(__file__).with_name("releases").glob("*.json"))
ACTIONS = {o.wire.name: o for o in OPERATIONS if isinstance(o.wire, Action)}
SAID = [
    pytest.param(name, said["request"], said["answer"], id=f"{path.stem}-{name}")
    for path in RELEASES
    for name, said in json.loads(path.read_text()).items()
]


def with_more(answer: Any) -> Any:
    """The answer as a newer broker might give it: with fields that nobody knows yet."""
    answer = deepcopy(answer)
    for each in answer if isinstance(answer, list) else [answer]:
        each["newer"] = {"of": "what"}
        for inner in [*each.get("events", ()), *each.get("herds", ()), *each.get("jobs", ())]:
            inner["newer"] = 1
    return answer


@pytest.mark.parametrize(("name", "request_", "answer"), SAID)
def test_todays_client_reads_what_an_older_broker_answers(name: str, request_: Any, answer: Any) -> None:
    codec = ACTIONS[name].wire.codec
    before = decoded(lambda: codec.decode(answer), answer)
    if not (isinstance(answer, dict) and isinstance(before, dict)):
        assert decoded(lambda: codec.decode(with_more(answer)), answer) == before, "and what a newer one adds"


@pytest.mark.parametrize(("name", "request_", "answer"), SAID)
def test_todays_broker_reads_what_an_older_client_asks(name: str, request_: Any, answer: Any) -> None:
    kind = ACTIONS[name]
    if kind.wire_fields():
        from_json(kind, request_ or {})


def test_an_older_client_finds_in_todays_answers_what_it_reads(served: Served) -> None:
    said = record(served)
    missing = [
        f"{path.stem}: {name}{place}"
        for path in RELEASES
        for name, older in json.loads(path.read_text()).items()
        for place in lacking(older["answer"], said[name]["answer"])
    ]
    assert missing == []


def lacking(older: Any, newer: Any, place: str = "") -> list[str]:
    """Where ``newer`` has nothing, or something of another kind."""
    if older is None or (newer is None and not isinstance(older, dict | list)):
        return []
    if isinstance(older, dict) and isinstance(newer, dict):
        gone = [f"{place}.{name}" for name in older if name not in newer]
        inner = [lacking(value, newer[name], f"{place}.{name}") for name, value in older.items() if name in newer]
        return gone + [each for found in inner for each in found]
    if isinstance(older, list) and isinstance(newer, list):
        return lacking(older[0], newer[0], f"{place}[0]") if older and newer else []
    number = (int, float)
    same = isinstance(newer, type(older)) or (isinstance(older, number) and isinstance(newer, number))
    return [] if same else [f"{place}: {older!r:.40} was, {newer!r:.40} is"]


def test_a_group_of_which_little_is_said_is_decoded() -> None:
    info = ACTIONS["group-info"].wire.codec.decode({"topic": "t", "group": "g", "tries": 3})
    assert (info.topic, info.tries, info.lost, info.oldest_due_ms) == ("t", 3, 0, None)


@pytest.mark.parametrize("op", [StreamOp.ACK, StreamOp.NACK, StreamOp.EXTEND, StreamOp.CLOSE])
def test_todays_broker_reads_how_an_older_client_settles(op: StreamOp) -> None:
    found = decode_settle(bytes([op]) + (5).to_bytes(8, "little") + np.array([1, 2, 3, 4], "<i8").tobytes())
    assert (found.op, found.argument) == (op, 5)
    assert (found.leases.tolist(), found.offsets.tolist()) == ([1, 3], [2, 4])


@dataclass(frozen=True, slots=True)
class OlderSubscribe(Request):
    """The command of a stream as 0.1.0 has it."""

    topic: str
    group: str
    prefetch: int = 1000
    lease_ms: int | None = None
    start: str | None = None
    broadcast: str | None = None
    window: ClassVar[None] = None


def older_settle(raw: bytes) -> Any:
    """What 0.1.0 reads of a consumer."""
    if raw[0] not in (StreamOp.ACK, StreamOp.NACK, StreamOp.EXTEND, StreamOp.CLOSE):
        raise InvalidArgumentError(f"not a settling message: {raw!r}")
    return decode_settle(raw)


@pytest.mark.parametrize("lease", [None, "400ms"])
def test_todays_consumer_of_an_older_broker_keeps_its_leases(
    lease: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert set(OlderSubscribe.wire_fields() or ()) < set(Subscribe.wire_fields() or ())
    monkeypatch.setattr("tarry.fronts.flight.requests.Subscribe", OlderSubscribe)
    monkeypatch.setattr("tarry.fronts.flight.receiving.LEASE_MS", b"unknown")
    monkeypatch.setattr("tarry.fronts.flight.receiving.decode_settle", older_settle)
    served = Served(tmp_path / "data", lease_ms=400, retry_ms=600_000)
    try:
        with Client(served.address) as client:
            client.schedule_many({"topic": "t", "body": b"%d" % number} for number in range(5))
            attempts, deadlines = [], set()
            with client.consume("t", group="g", lease=lease, timeout=0.5) as consumer:
                for message in consumer:
                    attempts.append(message.attempt)
                    while len(deadlines) < 4:  # extended so often, and so were those behind it
                        deadlines.add(held_until(client, message.seq))
                    if len(attempts) < 5:
                        message.ack()
                    else:
                        message.nack(reason="of which it does not hear")
            assert attempts == [1] * 5
            wait_until(lambda: client.group_info("t", "g").waiting == 1)
    finally:
        served.stop()
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == []


def held_until(client: Client, seq: int) -> int | None:
    """When the lease of a message ends, as its history has it."""
    events = client.history(f"{seq:016x}", topic="t").events
    return next(e.details.get("until_ms") for e in events if e.event == "group")
