"""The parts of the RocketMQ front that need no server."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tarry.api.row_schemas import DELIVERY, QUEUED
from tarry.base.clock import TestClock
from tarry.base.delay import ROCKETMQ_LEVELS, parse_levels
from tarry.base.errors import DiskFullError, InvalidArgumentError, OverloadedError, StaleLeaseError, TarryError
from tarry.fronts.rocketmq.common.access_keys import read_keys
from tarry.fronts.rocketmq.common.draft import DraftRules
from tarry.fronts.rocketmq.common.properties import join_keys, map_of, split_keys
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.send_queue import rows_of
from tarry.fronts.rocketmq.common.stubs import definition
from tarry.fronts.rocketmq.common.stubs import service as s
from tarry.fronts.rocketmq.common.unpacking import Unpacker
from tarry.fronts.rocketmq.v5.answer_bytes import ack_answer, send_answer
from tarry.fronts.rocketmq.v5.drafting import draft_of
from tarry.fronts.rocketmq.v5.handles import read_recall, read_receipt, recall_handle, receipt_handle
from tarry.fronts.rocketmq.v5.message_bytes import answers_of
from tarry.fronts.rocketmq.v5.receiving import poll_s
from tarry.fronts.rocketmq.v5.resources import group_of, topic_of
from tarry.fronts.rocketmq.v5.statuses import OK, overall
from tarry.message.admission import MessageLimits, admit
from tarry.message.schema import PROPERTIES
from tests.rocketmq.reference import messages_of
from tests.rocketmq.rpc import res
from tests.unit.test_layers import LAYERS, ROOT, SHARED, names_for

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=300)
KEY = st.text(st.characters(blacklist_categories=("Cc", "Cs")), min_size=1).filter(lambda k: k.strip())


@given(INT64, INT64, st.text(st.characters(codec="utf-8"), max_size=20))
def test_receipt_handles_come_back(lease: int, offset: int, topic: str) -> None:
    assert read_receipt(receipt_handle(lease, offset, topic)) == (lease, offset, topic, False)
    assert read_receipt(receipt_handle(lease, offset, topic, pushed=True)) == (lease, offset, topic, True)


@given(INT64, st.integers(0, 27), st.characters(codec="ascii"))
@example(-2, 12, "/")
def test_a_damaged_receipt_handle_is_refused(offset: int, place: int, instead: str) -> None:
    text = receipt_handle(1, offset)
    damaged = text[:place] + instead + text[place + 1 :]
    # Decoders of base64url take the two characters of plain base64 as well: those name the same bytes.
    if damaged.translate(str.maketrans("+/", "-_")) == text:
        return
    with pytest.raises(Refusal) as refusal:
        read_receipt(damaged)
    assert refusal.value.code == Code.INVALID_RECEIPT_HANDLE


@given(st.text(st.characters(codec="utf-8"), max_size=50))
def test_recall_handles_come_back(id: str) -> None:
    text = recall_handle("HANDLE", "orders", id)
    assert read_recall(text, "orders") == ("HANDLE", id)
    with pytest.raises(Refusal):
        read_recall(text, "others")


def test_a_brokers_own_handle_recalls_too() -> None:
    assert read_recall("HANDLE", "orders") == ("HANDLE", "")


@given(st.lists(KEY.filter(lambda k: k == k.strip()), min_size=1, max_size=5))
def test_keys_come_back(keys: list[str]) -> None:
    assert split_keys(join_keys(keys)) == keys
    if not any(" " in key for key in keys):
        assert join_keys(keys) == " ".join(keys), "as the original has them"


def test_names_in_namespaces() -> None:
    assert topic_of(res("orders"), "") == "orders"
    assert topic_of(res("orders"), "shop") == "shop%orders"
    assert topic_of(res("orders", "own"), "shop") == "own%orders"
    assert topic_of(res("%DLQ%g"), "shop") == "%DLQ%shop%g"
    assert group_of(res("g"), "shop") == "shop%g"


def test_the_brokers_errors_have_codes() -> None:
    assert Refusal.of(OverloadedError("x")).code == Refusal.of(DiskFullError("x")).code == Code.TOO_MANY_REQUESTS
    assert Refusal.of(StaleLeaseError("x")).code == Code.INVALID_RECEIPT_HANDLE
    assert Refusal.of(TarryError("x")).code == Code.INTERNAL_SERVER_ERROR


def test_the_overall_status() -> None:
    assert overall({Code.OK}).code == Code.OK
    assert overall({Code.BAD_REQUEST}).code == Code.BAD_REQUEST
    assert overall({Code.OK, Code.BAD_REQUEST}).code == Code.MULTIPLE_RESULTS


@pytest.mark.parametrize("text", ["", "# nothing\n", "one\n", "a b c\n", "a b\na c\n", "a,b c\n"])
def test_files_of_keys_that_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(InvalidArgumentError, match="rocketmq_keys"):
        read_keys(str(file))
    with pytest.raises(InvalidArgumentError, match="missing"):
        read_keys(str(tmp_path / "missing"))


@pytest.mark.parametrize("front", ["rocketmq", "metrics"])
def test_a_front_knows_api_alone(front: str) -> None:
    others = tuple(package for package in LAYERS if package not in (*SHARED, "fronts"))
    paths = list((ROOT / "fronts" / front).rglob("*.py"))
    assert paths
    assert names_for(paths, others) == []


@given(TEXT, st.integers(0, (1 << 63) - 1), TEXT, TEXT)
def test_bytes_of_a_send_that_the_library_would_write(id: str, offset: int, recall: str, transaction: str) -> None:
    entry = s.SendResultEntry(status=OK, message_id=id, offset=offset, recall_handle=recall, transaction_id=transaction)
    assert s.SendMessageResponse.FromString(send_answer(id, offset, recall, transaction)) == s.SendMessageResponse(
        status=OK, entries=[entry]
    )


@given(TEXT, TEXT)
def test_bytes_of_an_acknowledgement_that_the_library_would_write(id: str, handle: str) -> None:
    entry = s.AckMessageResultEntry(message_id=id, receipt_handle=handle, status=OK)
    assert s.AckMessageResponse.FromString(ack_answer(id, handle)) == s.AckMessageResponse(status=OK, entries=[entry])


@given(st.lists(st.lists(st.tuples(TEXT, TEXT), max_size=3), min_size=1, max_size=4))
@example([[("a", "1")], [], [("a", "2"), ("a", "3")]])
def test_a_column_of_properties(rows: list[list[tuple[str, str]]]) -> None:
    found = map_of(rows)
    assert found.type == PROPERTIES
    assert found.to_pylist() == rows


NOW_MS = 1_700_000_000_000
RULES = DraftRules(1000, 64 << 10, 86_400_000, tuple(parse_levels(ROCKETMQ_LEVELS)))
ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
MESSAGES = st.builds(
    definition.Message,
    topic=st.just(res("orders")),
    body=st.binary(max_size=20),
    user_properties=st.dictionaries(ANY_TEXT | st.sampled_from(["tarry.order", "DELAY", "KEYS"]), ANY_TEXT, max_size=3),
    system_properties=st.builds(
        definition.SystemProperties,
        message_id=ANY_TEXT | st.just("1"),
        tag=ANY_TEXT,
        keys=st.lists(ANY_TEXT, max_size=2),
        message_group=ANY_TEXT,
        born_host=ANY_TEXT,
        trace_context=st.none() | ANY_TEXT,
        delivery_timestamp=st.none()
        | st.builds(dict, seconds=st.integers(-5, 2_000_000_000), nanos=st.integers(0, 999_999_999)),
    ),
)


@given(st.lists(MESSAGES, min_size=1, max_size=4))
def test_what_this_front_lets_in_the_broker_would(messages: list[Any]) -> None:
    """It checks messages one by one, and they pass the door for columns by; so it may not be less strict."""
    drafts = []
    for message in messages:
        with suppress(Refusal):
            drafts.append(draft_of(message, "orders", TestClock(NOW_MS), RULES, "here:1", Unpacker(1000)))
    if not drafts:
        return
    texts = {name: [getattr(d, name) for d in drafts] for name in ("topic", "id", "tag", "order_key")}
    columns = {name: pa.array(column, pa.string()) for name, column in texts.items()}
    columns["due_ms"] = pa.array([d.due_ms for d in drafts], pa.int64())
    columns["body"] = pa.array([d.body for d in drafts], pa.binary())
    columns["properties"] = pa.array([d.properties for d in drafts], PROPERTIES)
    limits = MessageLimits(delay_ms_max=86_400_000, body_bytes_max=1000)
    assert rows_of(drafts, NOW_MS).to_pylist() == admit(pa.RecordBatch.from_pydict(columns), NOW_MS, limits).to_pylist()


def test_a_property_without_a_name_is_left_out() -> None:
    """The broker would refuse it, and with it all messages of its batch; RocketMQ takes it and delivers it no more."""
    system = definition.SystemProperties(message_id="1")
    message = definition.Message(
        topic=res("orders"), body=b"x", user_properties={"": "x", "colour": "red"}, system_properties=system
    )
    draft = draft_of(message, "orders", TestClock(NOW_MS), RULES, "here:1", Unpacker(1000))
    assert "" not in dict(draft.properties)
    assert dict(draft.properties)["colour"] == "red"


PROPERTY_NAMES = st.sampled_from(
    [
        "KEYS",
        "TRACE_CONTEXT",
        "__BORNHOST",
        "BORN_TIMESTAMP",
        "TRAN_MSG",
        "TIMER_DELIVER_MS",
        "tarry.order",
        "tarry.dead.topic",
        "x",
    ]
)
ROWS = st.lists(
    st.tuples(
        st.none() | TEXT,  # id
        st.none() | TEXT,  # tag
        st.dictionaries(PROPERTY_NAMES, TEXT | st.sampled_from(["true", "12", "1795325000123"]), max_size=9),
        st.binary(max_size=300),
        st.integers(0, 1 << 45),  # due_ms
        st.integers(0, 1 << 45),  # born_ms
        st.integers(0, 1 << 60),  # offset
        st.integers(1, 1 << 30),  # attempt
    ),
    min_size=1,
    max_size=3,
)


@given(ROWS, TEXT, st.sampled_from(["", "%DLQ%orders/g"]), st.sampled_from([DELIVERY, QUEUED]))
def test_bytes_of_a_message_that_the_library_would_write(
    rows: list[Any], name: str, other: str, schema: pa.Schema
) -> None:
    ids, tags, properties, bodies, dues, borns, offsets, attempts = zip(*rows, strict=True)
    given_columns = {
        "id": ids, "tag": tags, "body": bodies, "due_ms": dues, "born_ms": borns, "offset": offsets,
        "attempt": attempts, "seq": range(len(rows)), "lease": [7] * len(rows),
        "properties": [list(p.items()) or None for p in properties],
    }  # fmt: skip
    columns = [pa.array(list(given_columns.get(f.name, [None] * len(rows))), f.type) for f in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    asked = res(name)
    messages = list(messages_of(batch, asked, "host", other))
    for kind in (s.ReceiveMessageResponse, s.PullMessageResponse):
        answers = [kind.FromString(answer) for answer in answers_of(batch, asked, "host", other)]
        assert answers == [kind(message=message) for message in messages]


@pytest.mark.parametrize(
    ("said_s", "deadline_s", "wait_s"),
    [
        (0, 10, 0),
        (5, 10, 5),
        (60, 10, 9.8),
        (600, None, 60),
        (None, None, 15),
        (None, 20, 15),  # what Java's 5.0.3 asks for by its deadline, with half of its own time left for the way
        (None, 3, 0),
        (5, 0.1, 0),
    ],
)
def test_how_long_a_receive_waits(said_s: float | None, deadline_s: float | None, wait_s: float) -> None:
    request = s.ReceiveMessageRequest()
    if said_s is not None:
        request.long_polling_timeout.FromMilliseconds(int(said_s * 1000))
    call = SimpleNamespace(deadline=None if deadline_s is None else 1000 + deadline_s)
    assert poll_s(request, call, 1000, 10) == pytest.approx(wait_s)  # type: ignore[arg-type]
