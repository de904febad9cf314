"""A short run of `make fuzz` with a seed that stays the same; and by hypothesis, which finds the smallest example, the
streams of Flight in this process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.api.wire import SCHEDULE_PATH, decode_answer, decode_error
from tests.contract.conftest import Served
from tests.examples import examples
from tests.fuzz.fuzz import fuzz
from tests.fuzz.running import Run

CALLS = [pytest.param(50, id="short"), pytest.param(400, id="long", marks=pytest.mark.rest)]
many = settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
ALLOWED = {"invalid_argument", "invalid_message", "not_found", "message_too_large", "delay_too_long", "answered"}

names = st.sampled_from(["topic", "body", "delay_ms", "due_ms", "id", "key", "properties", "tries"]) | st.text(
    max_size=3
)
types = st.sampled_from(
    [pa.string(), pa.binary(), pa.int64(), pa.int8(), pa.float32(), pa.bool_(), pa.null(), pa.list_(pa.string())]
)
schemas = st.lists(st.tuples(names, types), max_size=6).map(pa.schema)


@pytest.mark.parametrize("calls", CALLS)
def test_nearly_valid_calls(calls: int, tmp_path: Path) -> None:
    assert sum(fuzz(Run(calls, calls), tmp_path).values()) == calls


@pytest.fixture
def flight(served: Served, caplog: pytest.LogCaptureFixture) -> Iterator[fl.FlightClient]:
    client = fl.FlightClient(f"grpc://{served.address}")
    yield client
    assert len(list(client.do_action("ping"))) == 1
    client.close()
    assert not [record for record in caplog.records if record.exc_info], "a bug is in the log"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A broker, served."""
    broker = Served(tmp_path / "data")
    yield broker
    broker.stop()


def outcome(call: Any) -> str:
    try:
        call()
    except fl.FlightError as error:
        return decode_error(error.extra_info).code if error.extra_info else "invalid_argument"
    except pa.ArrowException:
        return "invalid_argument"
    return "answered"


def test_batches_of_any_schema(flight: fl.FlightClient) -> None:
    @many
    @given(schemas, st.integers(0, 3), st.none() | st.binary(max_size=9))
    def each(schema: pa.Schema, rows: int, metadata: bytes | None) -> None:
        batch = pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)

        def put() -> None:
            writer, reader = flight.do_put(fl.FlightDescriptor.for_path(*SCHEDULE_PATH), schema)
            with writer:
                if metadata is None:
                    writer.write_batch(batch)
                else:
                    writer.write_with_metadata(batch, metadata)
                writer.done_writing()
                while (raw := reader.read()) is not None:
                    answer = decode_answer(raw.to_pybytes())
                    assert getattr(answer, "code", "answered") in ALLOWED

        assert outcome(put) in ALLOWED

    each()


def test_descriptors_of_any_kind(flight: fl.FlightClient) -> None:
    commands = st.binary(max_size=12) | st.dictionaries(
        st.sampled_from(["op", "topic", "number"]),
        st.none() | st.integers() | st.sampled_from(["schedule", "bulk-stage", "t", ""]),
    ).map(lambda fields: json.dumps(fields).encode())
    paths = st.lists(st.sampled_from(["schedule", "x", ""]), min_size=1, max_size=2)
    descriptors = commands.map(fl.FlightDescriptor.for_command) | paths.map(lambda p: fl.FlightDescriptor.for_path(*p))

    @many
    @given(descriptors, st.binary(max_size=12))
    def each(descriptor: fl.FlightDescriptor, metadata: bytes) -> None:
        def stream() -> None:
            writer, _ = flight.do_put(descriptor, pa.schema([("topic", pa.string())]))
            with writer:
                writer.write_metadata(metadata)
                writer.done_writing()

        assert outcome(stream) in ALLOWED

    each()
