"""Whatever is said to a broker, in well-formed JSON or not: it answers, or refuses with a code of its own."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tarry.api import wire
from tarry.api.operations import OPERATIONS
from tarry.api.operations.delivery import Subscribe
from tarry.api.parsing import parse
from tarry.api.wire import decode_error
from tarry.base.errors import InvalidArgumentError
from tarry.message import handle
from tarry.message.receipt import OUTCOMES

FIELDS = (
    *("topic", "group", "handles", "handle", "keys", "key", "due_ms", "delay_ms", "delay_level", "leases", "offsets"),
    *("lease_ms", "retry", "tries", "inflight_max", "filter", "ordered", "paused", "start", "to", "late", "limit"),
    *(
        "lateness_ms_max",
        "per_second",
        "op",
        "after",
        "max_messages",
        "broadcast",
        "end",
        "unit",
        "cursor",
        "id",
        "tag",
    ),
)
numbers = st.integers(-(1 << 70), 1 << 70) | st.integers(-2, 20) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=6) | st.sampled_from(
    ["t", "g", "earliest", "latest", "dead", "a || b", "sql: a > 1", "fixed 1s"]
)
scalars = st.none() | st.booleans() | numbers | texts
values = scalars | st.lists(scalars, max_size=4) | st.dictionaries(texts, scalars, max_size=2)
bodies = (
    st.binary(max_size=20)
    | values.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(FIELDS), values, max_size=5).map(lambda said: json.dumps(said).encode())
)
QUIET = {"store-committed", "pipeline-status"}
"""They take nearly anything."""
many = settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def code_of(call: Any) -> str | None:
    try:
        call()
    except fl.FlightError as error:
        assert error.extra_info, error
        return decode_error(error.extra_info).code
    return None


@pytest.fixture
def flight(served: Any) -> fl.FlightClient:
    served.broker.set_group("t", "g")
    return fl.FlightClient(f"grpc://{served.address}")


def test_actions(flight: fl.FlightClient) -> None:
    names = sorted({action.type for action in flight.list_actions()} - QUIET)
    assert len(names) > 20

    @many
    @given(st.sampled_from(names), bodies)
    def each(name: str, body: bytes) -> None:
        allowed = (None, "invalid_argument", "invalid_message", "delay_too_long", "not_found", "stale_lease")
        busy = ("overloaded",) if name == "begin-backup" else ()  # another one is under way
        assert code_of(lambda: list(flight.do_action(fl.Action(name, body)))) in (*allowed, *busy)

    each()
    assert len(list(flight.do_action("ping"))) == 1


def test_tickets(flight: fl.FlightClient) -> None:
    ops = st.sampled_from(["receive", "dead-letters", "intake", "drop", ""])
    # No "wait_ms": a long poll would be one.
    said = st.builds(lambda op, rest: {**rest, "op": op}, ops, st.dictionaries(st.sampled_from(FIELDS), values))

    @many
    @given(bodies | said.map(lambda ticket: json.dumps(ticket).encode()))
    def each(raw: bytes) -> None:
        code = code_of(lambda: flight.do_get(fl.Ticket(raw)).read_all())
        assert code in (None, "invalid_argument", "invalid_message", "not_found")

    each()
    assert len(list(flight.do_action("ping"))) == 1


@given(
    st.builds(
        lambda seq, due, row, rows, token: handle.encode(seq + row, due, seq, rows + row, token),
        *(st.integers(0, 1 << 60), st.integers(0, 1 << 60), st.integers(0, 1 << 31), st.integers(1, 1 << 30)),
        st.binary(min_size=8, max_size=8),
    )
)
@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_handles_that_nobody_made(flight: fl.FlightClient, text: str) -> None:
    body = json.dumps({"handles": [text]}).encode()
    assert code_of(lambda: list(flight.do_action(fl.Action("cancel", body)))) == "forged_handle"


requests = st.sampled_from([Subscribe, *(kind for kind in OPERATIONS if kind.wire_fields())])


@given(requests, bodies)
def test_requests_are_parsed_or_refused(kind: Any, raw: bytes) -> None:
    """What is understood is understood again when it is said anew."""
    try:
        parsed = parse(kind, raw)
    except InvalidArgumentError:
        return
    again = parse(kind, wire.encode_json(parsed.to_wire()))
    assert again.to_wire() == parsed.to_wire()


def test_batches_with_the_columns_of_keys_and_series(flight: fl.FlightClient) -> None:
    """Every batch has an answer, and one that is placed has a place for each row."""
    names = ("id", "key", "on_key", "repeat", "order_key", "late")
    good: tuple[list[str | None], ...] = (
        *([None, "i", "j"], [None, "k", "l"], [None, "replace", "keep", "refuse"]),
        *([None, '{"every": "1h"}'], [None, "o"], [None, "drop", "dead"]),
    )
    row = st.tuples(*(st.sampled_from(words * 10) | st.none() for words in good))
    odd = st.tuples(*([st.none() | st.text(max_size=3)] * len(names)))
    rows = st.lists(row, min_size=1, max_size=4) | st.lists(row | odd, min_size=1, max_size=4)
    schema = pa.schema([("topic", pa.string()), ("body", pa.string()), ("delay_level", pa.int32())])
    schema = pa.schema([*schema, *((name, pa.string()) for name in names)])
    writer, reader = flight.do_put(fl.FlightDescriptor.for_path("schedule"), schema)
    seen: set[str] = set()

    @many
    @given(rows, st.integers(-5, 30))
    def each(found: list[tuple[str | None, ...]], level: int) -> None:
        count = len(found)
        columns = [pa.array(column, pa.string()) for column in zip(*found, strict=True)]
        fixed = [pa.array(["t"] * count), pa.array(["b"] * count), pa.array([level] * count, pa.int32())]
        writer.write_batch(pa.RecordBatch.from_arrays([*fixed, *columns], schema=schema))
        answer = wire.decode_answer(reader.read().to_pybytes())
        if isinstance(answer, wire.PlacedAnswer | wire.AcceptedAnswer):
            assert answer.rows == count
        else:
            assert answer.code in ("invalid_message", "key_exists", "message_too_large")  # type: ignore[union-attr]
        if isinstance(answer, wire.PlacedAnswer):
            seen.update(OUTCOMES[outcome] for outcome in answer.placed["outcome"].tolist())

    each()
    # By hand, for what chance may leave out: each outcome, with names that are too long for chance.
    new = ("an id", "a key", None)
    last = [new, (None, "a key", "replace"), (None, "a key", "keep"), new, (None, "no such key", "if_pending")]
    for id, key, on_key in last:
        each.hypothesis.inner_test([(id, key, on_key, None, None, None)], 18)
    writer.close()
    assert seen == set(OUTCOMES) - {"changed"}, "a batch of these columns cannot say of which message it knows"
