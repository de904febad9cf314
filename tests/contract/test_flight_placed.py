"""Answers to batches with keys and ids: a broker that judges by them, behind the real front, and the real clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tarry.api.credential_uses import CredentialUses
from tarry.base.clock import SystemClock
from tarry.base.config import Config
from tarry.base.errors import InvalidMessageError, KeyExistsError
from tarry.client import AsyncClient, Client
from tarry.fronts.flight.front import FlightFront
from tarry.message import handle
from tarry.message.accepted import PLACED
from tarry.message.receipt import OUTCOMES, Receipt

TOKEN = b"12345678"


class FakeBroker:
    """Knows keys and ids for ever, and nothing else of a broker."""

    config = Config()
    clock = SystemClock()
    identities = ()
    access_tokens = ()
    credential_uses = CredentialUses()
    epoch = None

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entries: dict[str, tuple[Any, ...]] = {}
        self.next_seq = 0
        self.batches: list[pa.RecordBatch] = []

    def submit(self, data: pa.RecordBatch, done: Callable[[Any], None], *, lead: bool = False, **_: bool) -> None:
        with self.lock:
            done(self.judge(data))

    def judge(self, data: pa.RecordBatch) -> Any:
        self.batches.append(data)
        rows = data.to_pylist()
        for number, row in enumerate(rows):
            if row.get("on_key") == "refuse" and row["key"] in self.entries:
                raise KeyExistsError(f"key {row['key']!r} is pending", row=number)
        first, self.next_seq = self.next_seq, self.next_seq + len(rows)
        due = np.array([row.get("due_ms") or 1000 + (row.get("delay_ms") or 0) for row in rows], np.int64)
        placed = [self.place(row, first + i, int(due[i]), first, len(rows)) for i, row in enumerate(rows)]
        needed = any(entry[-1] for entry in placed)
        return Answered(first, due, np.array(placed, PLACED) if needed else None)

    def place(self, row: dict[str, Any], seq: int, due: int, first: int, rows: int) -> tuple[Any, ...]:
        new = (seq, due, first, rows, TOKEN, OUTCOMES.index("scheduled"))
        for name, outcome in (("id", "duplicate"), ("key", "kept" if row.get("on_key") == "keep" else "replaced")):
            given = row.get(name)
            if given is not None:
                old = self.entries.setdefault(given, new)
                if old is not new and outcome == "replaced":
                    self.entries[given] = new
                    return (*new[:-1], OUTCOMES.index(outcome))
                if old is not new:
                    return (*old[:-1], OUTCOMES.index(outcome))
        return new


class Answered:
    def __init__(self, first_seq: int, due_ms: np.ndarray, placed: Any) -> None:
        self.first_seq, self.due_ms, self.token, self.placed = first_seq, due_ms, TOKEN, placed


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def address(broker: FakeBroker) -> Iterator[str]:
    with FlightFront.start(broker, "127.0.0.1:0") as front:  # type: ignore[arg-type]
        yield front.address


def speaks_of(receipt: Receipt) -> tuple[int, int, int, int]:
    found = handle.decode(receipt.handle)
    assert (found.seq, found.due_ms, found.token) == (receipt.seq, receipt.due_ms, TOKEN)
    return found.seq, found.due_ms, found.first_seq, found.rows


def test_one_at_a_time(address: str, broker: FakeBroker) -> None:
    with Client(address) as client:
        first = client.schedule("t", b"", key="k", delay=1)
        assert (first.outcome, first.due_ms) == ("scheduled", 2000)
        kept = client.schedule("t", b"", key="k", on_key="keep", delay=9)
        assert (kept.outcome, kept) == ("kept", first)
        second = client.schedule("t", b"", key="k", delay=2)
        assert (second.outcome, speaks_of(second)) == ("replaced", (2, 3000, 2, 1))
        with pytest.raises(KeyExistsError, match=r"^key 'k' is pending") as refused:
            client.schedule("t", b"", key="k", on_key="refuse")
        assert refused.value.row is None
        once = client.schedule("t", b"", id="i", due=77)
        again = client.schedule("t", b"", id="i", due=78)
        assert (once.outcome, again.outcome) == ("scheduled", "duplicate")
        assert (again, again.id, again.due_ms) == (once, "i", 77)
    assert "on_key" not in broker.batches[2].schema.names  # the policy that goes without saying costs no column


def test_many(address: str) -> None:
    messages = [{"topic": "t", "body": b"", "key": f"k{i % 3000}", "due": i} for i in range(9000)]
    with Client(address) as client:
        receipts = client.schedule_many(messages)
        assert [r.outcome for r in receipts] == ["scheduled"] * 3000 + ["replaced"] * 6000
        assert [r.seq for r in receipts] == list(range(9000))
        kept = client.schedule_many({**message, "on_key": "keep"} for message in messages)
        assert [speaks_of(r) for r in kept[:3000]] == [speaks_of(r) for r in receipts[6000:]]
        assert {r.outcome for r in kept} == {"kept"}


def test_columns_that_come_late_begin_a_new_stream(address: str, broker: FakeBroker) -> None:
    plain = [{"topic": "t", "body": b"%d" % i} for i in range(5000)]
    keyed = [{"topic": "t", "body": b"", "key": "k", "due": 5}]
    with Client(address) as client:
        receipts = client.schedule_many([*plain, *keyed, *plain, *keyed])
        assert [r.seq for r in receipts] == list(range(10_002))
        assert [r.outcome for r in receipts].index("replaced") == 10_001
        names = [tuple(batch.schema.names) for batch in broker.batches]
        assert names[0] == ("topic", "body", "delay_ms")
        assert names[1] == names[2] == ("topic", "body", "due_ms", "delay_ms", "key")
        with pytest.raises(KeyExistsError, match=r"^row 5001: key 'k' is pending") as refused:
            client.schedule_many([*plain, *plain[:1], {**keyed[0], "on_key": "refuse"}])
        assert refused.value.row == 5001


def test_batches(address: str) -> None:
    table = pa.table({"topic": ["t"] * 4, "body": ["x"] * 4, "due_ms": [5, 6, 7, 8], "key": ["a", "b", "a", "a"]})
    with Client(address) as client:
        [accepted] = client.schedule_batch(table)
        assert accepted.outcomes == ["scheduled", "scheduled", "replaced", "replaced"]
        assert (accepted.first_seq, accepted.seqs.tolist(), accepted.due_ms.tolist()) == (0, [0, 1, 2, 3], [5, 6, 7, 8])
        keep = table.append_column("on_key", pa.array(["keep"] * 4))
        [kept] = client.schedule_batch(keep)
        assert (kept.first_seq, kept.seqs.tolist(), kept.due_ms.tolist()) == (3, [3, 1, 3, 3], [8, 6, 8, 8])
        assert [handle.decode(text).seq for text in kept.handles()] == [3, 1, 3, 3]
        assert [handle.decode(text).first_seq for text in kept.handles()] == [0] * 4
        refuse = table.append_column("on_key", pa.array([None, None, None, "refuse"]))
        with pytest.raises(KeyExistsError, match=r"^row 3: ") as refused:
            client.schedule_batch(refuse)
        assert refused.value.row == 3
        [plain] = client.schedule_batch(table.drop(["key"]))
        assert (plain.placed, plain.outcomes) == (None, ["scheduled"] * 4)


def test_a_refused_key_harms_only_its_own_caller(address: str, broker: FakeBroker) -> None:
    """The others of its batch go again without it; their keys and ids were not taken by the batch that was refused."""
    callers = 200

    async def main() -> list[Any]:
        async with AsyncClient(address) as client:
            taken = await client.schedule("t", b"", key="taken")
            assert taken.outcome == "scheduled"
            calls = [
                client.schedule("t", b"", key="taken", on_key="refuse")
                if i % 50 == 7
                else client.schedule("t", b"", key=f"k{i}", on_key="refuse", id=f"i{i}")
                for i in range(callers)
            ]
            return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(main())
    assert max(batch.num_rows for batch in broker.batches) > 50  # they did travel together
    for number, answer in enumerate(answers):
        if number % 50 == 7:
            assert type(answer) is KeyExistsError
            assert (answer.row, str(answer)) == (None, "key 'taken' is pending")
        else:
            assert answer.outcome == "scheduled"
            assert broker.entries[f"k{number}"][0] == answer.seq
    assert len({a.seq for a in answers if isinstance(a, Receipt)}) == callers - 4


def test_key_policies_that_mean_nothing_are_refused_here(address: str, broker: FakeBroker) -> None:
    with Client(address) as client, pytest.raises(InvalidMessageError, match="on_key is 'drop'; allowed: replace"):
        client.schedule("t", b"", key="k", on_key="drop")
    assert broker.batches == []
