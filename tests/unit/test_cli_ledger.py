"""``send --ledger`` and ``receive --ledger`` write what an audit reads."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli_tools import Captured, data_of, out_of

from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError
from tarry.broker import Broker
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.client import Client
from tarry.fronts.flight.front import FlightFront
from tarry.message.accepted import ids_of
from tarry.message.receipt import id_of
from tarry.spark.reports.audit.count import Survey
from tarry.spark.reports.audit.page import audit_page
from tarry.spark.reports.audit.result import Audit, Counts, Example, Late


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    config = Config(data=tmp_path / "data", pipeline="off", disk_free_bytes_min=0)
    with Broker.open(config) as broker, FlightFront.start(broker, "127.0.0.1:0") as front:
        monkeypatch.setenv("TARRY_ENDPOINT", front.address)
        yield front.address


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# -- what was accepted -------------------------------------------------------------------------------------------------


def test_what_was_sent(address: str, capsys: Captured, tmp_path: Path) -> None:
    ledger = tmp_path / "sent.jsonl"
    before_ms = int(time.time() * 1000)
    [first] = data_of(capsys, "send", "orders", "a", "--delay", "1h", "--id", "mé", "--ledger", str(ledger))
    [second] = data_of(capsys, "send", "orders", "b", "--ttl", "1h", "--ledger", str(ledger))
    sent = rows(ledger)
    for row, receipt in zip(sent, (first, second), strict=True):
        assert {"topic": "orders", **{n: receipt[n] for n in ("id", "seq", "due_ms")}}.items() <= row.items()
        assert before_ms <= row["accepted_ms"] <= int(time.time() * 1000)
    assert "expire_ms" not in sent[0]
    assert before_ms + 3_600_000 <= sent[1]["expire_ms"] <= sent[1]["accepted_ms"] + 3_600_000


def test_each_line_of_many(address: str, capsys: Captured, tmp_path: Path) -> None:
    lines, ledger = tmp_path / "lines", tmp_path / "sent.jsonl"
    lines.write_text("x\n" * 5000)
    [data] = data_of(
        capsys, "send", "orders", "--lines", "--file", str(lines), "--delay", "5s", "--ledger", str(ledger)
    )
    sent = rows(ledger)
    assert [row["seq"] for row in sent] == list(range(data["first_seq"], data["last_seq"] + 1))
    assert all(row["id"] == id_of(row["seq"]) for row in sent)


def test_a_retry_is_the_same_message_and_a_kept_one_is_not_ours(address: str, capsys: Captured, tmp_path: Path) -> None:
    ledger = tmp_path / "sent.jsonl"
    for _ in range(2):
        out_of(capsys, "send", "orders", "a", "--id", "one", "--delay", "1h", "--ledger", str(ledger))
    assert len({(row["id"], row["seq"], row["due_ms"]) for row in rows(ledger)}) == 1
    out_of(capsys, "send", "orders", "a", "--key", "k", "--delay", "1h")
    out_of(capsys, "send", "orders", "b", "--key", "k", "--on-key", "keep", "--ledger", str(ledger))
    assert len(rows(ledger)) == 2


def test_without_an_answer_it_may_come_or_not(capsys: Captured, tmp_path: Path) -> None:
    ledger = tmp_path / "sent.jsonl"
    arguments = ["send", "orders", "a", "--endpoint", "127.0.0.1:1", "--ledger", str(ledger)]
    assert run([*arguments, "--id", "mine"]) == ExitCode.UNAVAILABLE
    assert run(arguments) == ExitCode.UNAVAILABLE
    assert rows(ledger) == [{"topic": "orders", "id": "mine", "answered": False}]


def test_what_a_ledger_cannot_hold(address: str, capsys: Captured, tmp_path: Path) -> None:
    ledger = str(tmp_path / "sent.jsonl")
    assert run(["send", "orders", "a", "--every", "1h", "--ledger", ledger]) == ExitCode.USAGE
    assert "each of its occurrences" in " ".join(capsys.readouterr().err.split())
    for command in (["send", "orders", "a"], ["receive", "orders"]):
        assert run([*command, "--ledger", str(tmp_path / "no" / "x")]) == ExitCode.USAGE
        assert "cannot be written: No such file" in " ".join(capsys.readouterr().err.split())


# -- what was delivered ------------------------------------------------------------------------------------------------


def test_what_was_received(address: str, capsys: Captured, tmp_path: Path) -> None:
    ledger = tmp_path / "got.jsonl"
    for body in "ab":
        out_of(capsys, "send", "orders", body)
    take = ["receive", "orders", "--wait", "20s", "--ledger", str(ledger)]
    [first] = data_of(capsys, *take, "--no-ack", "--group", "g")
    [second] = data_of(capsys, *take, "--group", "g")
    out_of(capsys, *take, "--group", "all", "--broadcast", "me", "--start", "earliest")
    got = rows(ledger)
    for row, message in zip(got[:2], (first, second), strict=True):
        names = ("topic", "id", "seq", "due_ms", "attempt")
        assert {n: row[n] for n in names} == {n: message[n] for n in names}
        assert row["delivered_ms"] >= row["due_ms"]
    assert [row["group"] for row in got] == ["g", "g", "all@me"]


def test_batches_of_a_consumer_have_ids(address: str) -> None:
    with Client(address) as client:
        given = [client.schedule("orders", b"x", delay=0, id=id).id for id in ("mine", None, None)]
        with client.consume("orders", group="g", start="earliest") as consumer:
            found: list[str] = []
            for batch in consumer.batches():
                assert batch.data.schema.names[0] == "seq"
                found += batch.data.column("id").to_pylist()
                assert found[-len(batch) :] == [message.id for message in batch]
                batch.ack()
                if len(found) >= 3:
                    break
    assert sorted(found) == sorted(given)


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_ids_of_many_are_those_of_each(seqs: list[int]) -> None:
    assert ids_of(pa.array(seqs, pa.int64())).to_pylist() == [id_of(seq) for seq in seqs]


# -- what is made of them ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unread", "named"), [((6, 0), "6 of 10 rows of the accepted"), ((5, 4), "4 of 7 rows of the delivered")]
)
def test_ledgers_that_cannot_be_read_are_no_loss(unread: tuple[int, int], named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{named} ledger have no identity, or no time"):
        Survey(1.0, True, True, 10, unread[0], 7, unread[1], 0).check()


@pytest.mark.parametrize(("rows_", "unread"), [((10, 7), (5, 3)), ((0, 0), (0, 0))])
def test_ledgers_that_can_be_read(rows_: tuple[int, int], unread: tuple[int, int]) -> None:
    Survey(1.0, True, True, rows_[0], unread[0], rows_[1], unread[1], 0).check()


@pytest.mark.parametrize("by", ["id", "seq"])
def test_columns_of_the_page_have_names_of_their_own(by: str) -> None:
    example = Example("t", "one", "one", 5, 1, None, "")
    found = Audit(
        by=by,
        until_ms=10.0,
        skew_ms=0,
        grace_ms=0,
        every_group=False,
        unit="hour",
        counts=Counts(accepted=1, lost=1),
        late=Late(),
        early_most_ms=0.0,
        histogram=[],
        topics=[],
        topics_count=0,
        groups=[],
        units=[],
        units_left_out=0,
        examples={"lost": [example]},
    )
    page = audit_page(found)
    for table in page.split("<thead>")[1:]:
        heads = [part.partition("</th>")[0].rpartition(">")[2] for part in table.partition("</thead>")[0].split("<th")]
        named = [head for head in heads if head]
        assert len(named) == len(set(named)), named
    terms = [part.partition("</dt>")[0] for part in page.partition('class="terms"')[2].split("<dt>")[1:]]
    assert len(terms) == len(set(terms)), terms
