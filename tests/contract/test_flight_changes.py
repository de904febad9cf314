"""Cancel, reschedule and look up, over the wire: a desk that knows what it is told, the real front and clients."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow.flight as fl
import pytest

from tarry.api import operations as ops
from tarry.api.credential_uses import CredentialUses
from tarry.api.operation import Operation
from tarry.api.operations.messages import HANDLES_MAX
from tarry.api.outcome import Outcome, Rescheduled
from tarry.api.wire import decode_error
from tarry.base.clock import SystemClock
from tarry.base.config import Config
from tarry.base.delay import DelayLevel
from tarry.base.errors import ForgedHandleError, InvalidArgumentError, TarryError
from tarry.client import AsyncClient, Client
from tarry.fronts.flight.front import FlightFront
from tarry.message import handle
from tarry.message.receipt import Receipt

TOKEN = b"12345678"
NOW = 1_000_000


class Desk:
    """Knows messages 0 to 9 of topic t, by handle, and the even ones by key."""

    config = Config()
    clock = SystemClock()
    identities = ()
    access_tokens = ()
    credential_uses = CredentialUses()
    epoch = None

    def __init__(self) -> None:
        self.state: dict[int, Outcome] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.lock = threading.Lock()

    def call(self, operation: Operation[Any]) -> Any:
        match operation:
            case ops.Cancel():
                return self.cancel_many(operation.handles)
            case ops.CancelKeys():
                self.calls.append(("cancel-keys", operation.topic, list(operation.keys)))
                return [Outcome.DONE if key.startswith("k") else Outcome.UNKNOWN for key in operation.keys]
            case ops.Reschedule():
                return self.reschedule(operation)
            case ops.FindKey():
                return receipt(int(operation.key[1:]), 77, "named") if operation.key.startswith("k") else None
        raise AssertionError(operation)

    def cancel_many(self, handles: Sequence[str]) -> list[Outcome]:
        self.calls.append(("cancel", len(handles)))
        seqs = [self.seq_of(place, text) for place, text in enumerate(handles)]
        with self.lock:
            return [self.cancel(seq) for seq in seqs]

    def seq_of(self, place: int, text: str) -> int:
        try:
            found = handle.decode(text)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"handle {place}: {error}") from None
        if found.token != TOKEN:
            raise ForgedHandleError(f"handle {place}: not of this broker")
        return found.seq

    def cancel(self, seq: int) -> Outcome:
        if not 0 <= seq < 10:
            return Outcome.UNKNOWN
        return Outcome.DONE if self.state.setdefault(seq, Outcome.DONE) is not Outcome.CANCELLED else Outcome.CANCELLED

    def reschedule(self, asked: ops.Reschedule) -> Rescheduled:
        self.calls.append(("reschedule", asked.due_ms, asked.delay_ms, asked.delay_level))
        if asked.handle is None:
            return Rescheduled(Outcome.UNKNOWN)
        seq = self.seq_of(0, asked.handle)
        if seq >= 10:
            return Rescheduled(Outcome.DELIVERED)
        return Rescheduled(Outcome.DONE, receipt(seq + 100, asked.due_ms or NOW + (asked.delay_ms or 0)))


def receipt(seq: int, due_ms: int = 5, id: str = "i", token: bytes = TOKEN) -> Receipt:
    return Receipt(id, seq, due_ms, seq, 1, token)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def address(desk: Desk) -> Iterator[str]:
    with FlightFront.start(desk, "127.0.0.1:0") as front:  # type: ignore[arg-type]
        yield front.address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as found:
        yield found


def test_cancel(client: Client, desk: Desk) -> None:
    desk.state[3] = Outcome.CANCELLED
    assert client.cancel(receipt(2).handle) is client.cancel(receipt(2)) is Outcome.DONE
    assert client.cancel(receipt(3).handle) is Outcome.CANCELLED
    assert client.cancel_many([receipt(n).handle for n in (1, 3, 99)]) == ["done", "cancelled", "unknown"]
    assert client.cancel_many([]) == []
    assert client.cancel_key("t", "k1") is Outcome.DONE
    assert client.cancel_keys("t", ["k1", "ö", "k2"]) == ["done", "unknown", "done"]
    assert desk.calls[-1] == ("cancel-keys", "t", ["k1", "ö", "k2"])
    assert client.cancel_keys("t", []) == []


def test_many_handles_travel_in_calls_of_a_bounded_size(client: Client, desk: Desk) -> None:
    handles = [receipt(n).handle for n in range(HANDLES_MAX + 5)]
    found = client.cancel_many(handles)
    assert found == [Outcome.DONE] * 10 + [Outcome.UNKNOWN] * (HANDLES_MAX - 5)
    assert desk.calls == [("cancel", HANDLES_MAX), ("cancel", 5)]
    keys = [f"k{n}" for n in range(HANDLES_MAX + 5)]
    assert client.cancel_keys("t", keys) == [Outcome.DONE] * len(keys)
    assert [len(call[2]) for call in desk.calls[2:]] == [HANDLES_MAX, 5]


def test_a_damaged_handle_is_named_by_its_place_and_nothing_is_done(client: Client, desk: Desk) -> None:
    good = receipt(1).handle
    damaged = good[:20] + ("A" if good[20] != "A" else "B") + good[21:]
    with pytest.raises(InvalidArgumentError, match=r"^handle 2: .* is damaged") as refused:
        client.cancel_many([good, good, damaged])
    assert refused.value.code == "invalid_argument"
    with pytest.raises(InvalidArgumentError, match=rf"^handle {HANDLES_MAX + 1}: .* is damaged"):
        client.cancel_many([good] * (HANDLES_MAX + 1) + [damaged])
    assert desk.state == {}
    with pytest.raises(ForgedHandleError, match=r"^handle 1: not of this broker"):
        client.cancel_many([good, receipt(1, token=b"x" * 8).handle])
    assert desk.state == {}
    with pytest.raises(ForgedHandleError, match=rf"^handle {HANDLES_MAX + 1}: not of this broker"):
        client.cancel_many([good] * (HANDLES_MAX + 1) + [receipt(1, token=b"x" * 8).handle])
    with pytest.raises(InvalidArgumentError, match=r"^handle '.*is damaged"):
        client.cancel(damaged)
    with pytest.raises(ForgedHandleError, match=r"^not of this broker"):
        client.cancel(receipt(1, token=b"x" * 8).handle)
    for wrong in (good, good.encode(), None, 7, [good, 7], [None]):
        with pytest.raises(InvalidArgumentError, match=r"allowed: (a list of )?texts"):
            client.cancel_many(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"half a character|surrogates"):
        client.cancel_keys("t", ["\ud800"])


def test_reschedule(client: Client, desk: Desk) -> None:
    text = receipt(2).handle
    done = client.reschedule(text, delay="1h")
    assert done.outcome is Outcome.DONE
    assert done.receipt is not None
    assert (done.receipt, done.receipt.id) == (receipt(102, NOW + 3_600_000), "i")
    assert client.reschedule(receipt(50).handle, due=5) == Rescheduled(Outcome.DELIVERED)
    assert client.reschedule_key("t", "k", delay=1.5) == Rescheduled(Outcome.UNKNOWN)
    client.reschedule(text, due=datetime(2030, 1, 1, tzinfo=UTC))
    client.reschedule(text, delay=DelayLevel(3))
    client.reschedule(text, delay=datetime(2030, 1, 1, tzinfo=UTC))
    assert [call[1:] for call in desk.calls] == [
        (None, 3_600_000, None), (5, None, None), (None, 1_500, None), (1893456000000, None, None),
        (None, None, 3), (1893456000000, None, None),
    ]  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="neither delay nor due"):
        client.reschedule(text)
    for wrong in ({"delay": 1, "due": 1}, {"delay": "soon"}, {"delay": -1}, {"due": datetime(2030, 1, 1)}):
        with pytest.raises(InvalidArgumentError):
            client.reschedule(text, **wrong)  # type: ignore[arg-type]
    with pytest.raises(TarryError, match="64 bits"):
        client.reschedule(text, delay=1e300)


def test_find_key(client: Client) -> None:
    found = client.find_key("t", "k7")
    assert found is not None
    assert (found.id, found.seq, found.due_ms, found) == ("named", 7, 77, receipt(7, 77))
    assert client.find_key("t", "x") is None


def test_async(address: str) -> None:
    async def main() -> None:
        async with AsyncClient(address) as client:
            outcomes = await asyncio.gather(*(client.cancel(receipt(n).handle) for n in range(20)))
            assert outcomes == [Outcome.DONE] * 10 + [Outcome.UNKNOWN] * 10
            assert await client.cancel_many([receipt(1).handle] * 2) == ["done", "done"]
            assert await client.cancel_key("t", "k") == "done"
            assert await client.cancel_keys("t", ["k", "x"]) == ["done", "unknown"]
            assert (await client.reschedule(receipt(1).handle, delay=1)).outcome == "done"
            assert (await client.reschedule_key("t", "k", due=1)).outcome == "unknown"
            assert (await client.find_key("t", "k3")) == receipt(3, 77)
            with pytest.raises(InvalidArgumentError, match="not a handle"):
                await client.cancel("x")

    asyncio.run(main())


HANDLE = receipt(1).handle


@pytest.mark.parametrize(
    ("name", "body", "problem"),
    [
        ("cancel", b"", "handles is missing"),
        ("cancel", b"\xff\xfe", "not JSON"),
        ("cancel", b'{"handles": ["\xed\xa0\x80"]}', "not JSON"),
        ("cancel", b'{"handles": ["\\ud800"]}', "not JSON"),
        ("cancel", [], "allowed: a JSON object"),
        ("cancel", {}, "handles is missing"),
        ("cancel", {"handles": "text"}, "handles is 'text'"),
        ("cancel", {"handles": [5]}, "handles.0 is 5"),
        ("cancel", {"handles": ["x"]}, "handle 0: not a handle"),
        ("cancel", {"handles": [HANDLE], "topic": "t"}, "topic is not a field"),
        ("cancel", {"handles": [HANDLE] * (HANDLES_MAX + 1)}, "at most 65536"),
        ("cancel-keys", {"topic": "t"}, "keys is missing"),
        ("cancel-keys", {"topic": None, "keys": []}, "topic is None"),
        ("cancel-keys", {"topic": "t", "keys": ["k", None]}, "keys.1 is None"),
        ("find-key", {"topic": "t", "key": ["k"]}, "key is ['k']"),
        ("reschedule", {"handle": HANDLE}, "exactly one of due_ms, delay_ms, delay_level is needed; given: none"),
        ("reschedule", {"handle": HANDLE, "due_ms": 1, "delay_ms": 1}, "given: due_ms, delay_ms"),
        ("reschedule", {"handle": HANDLE, "delay_ms": -1}, "delay_ms is -1"),
        ("reschedule", {"handle": HANDLE, "delay_ms": 1.5}, "delay_ms is 1.5"),
        ("reschedule", {"handle": HANDLE, "due_ms": 1 << 63}, "due_ms is"),
        ("reschedule", {"handle": HANDLE, "topic": "t", "due_ms": 1}, "allowed: a handle, or a topic and a key"),
        ("reschedule", {"topic": "t", "due_ms": 1}, "allowed: a handle, or a topic and a key"),
        ("reschedule", {"due_ms": 1}, "allowed: a handle, or a topic and a key"),
    ],
)
def test_bad_commands(name: str, body: Any, problem: str, address: str, desk: Desk) -> None:
    flight = fl.FlightClient(f"grpc://{address}")
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(fl.FlightServerError) as caught:
        list(flight.do_action(fl.Action(name, raw)))
    error = decode_error(caught.value.extra_info)
    assert error.code == "invalid_argument"
    assert problem in str(error)
    assert desk.state == {}
    [again] = flight.do_action(fl.Action("cancel", json.dumps({"handles": [HANDLE]}).encode()))
    assert json.loads(again.body.to_pybytes()) == {"outcomes": ["done"]}


def test_a_delay_of_which_no_timedelta_can_be_made_is_the_broker_s_to_refuse(address: str, desk: Desk) -> None:
    flight = fl.FlightClient(f"grpc://{address}")
    list(flight.do_action(fl.Action("reschedule", json.dumps({"handle": HANDLE, "delay_ms": 1 << 61}).encode())))
    assert desk.calls[-1] == ("reschedule", None, 1 << 61, None)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"outcomes": None},
        {"outcomes": ["gone"]},
        {"outcomes": [["done"]]},
        {"outcomes": ["done", "done"]},
    ],
)
def test_an_answer_that_cannot_be_read_is_an_error_of_ours(
    answer: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.client.questions.Question.wait", lambda *_: memoryview(json.dumps(answer).encode()))
    with pytest.raises(TarryError, match=r"could not be read|2 answers to 1 questions"):
        client.cancel(HANDLE)


@pytest.mark.parametrize(
    "answer", [None, {}, {"receipt": 7}, {"receipt": {"handle": "x"}}, {"receipt": {"handle": HANDLE}}]
)
def test_a_receipt_that_cannot_be_read(answer: Any, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.client.questions.Question.wait", lambda *_: memoryview(json.dumps(answer).encode()))
    with pytest.raises(TarryError, match="could not be read"):
        client.find_key("t", "k")
