"""DoPut, spoken with bare pyarrow: every refusal leaves the stream usable; answers come in order; ends of all kinds."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from tarry.api.credential_uses import CredentialUses
from tarry.api.wire import AcceptedAnswer, Goodbye, decode_answer, decode_error
from tarry.base.clock import SystemClock
from tarry.base.config import Config
from tarry.base.errors import (
    DelayTooLongError,
    InvalidMessageError,
    MessageTooLargeError,
    OverloadedError,
    TarryError,
)
from tarry.fronts.flight.front import FlightFront

SCHEDULE = fl.FlightDescriptor.for_path("schedule")


class Put:
    """One stream, used as any Flight client would."""

    def __init__(self, address: str, schema: pa.Schema) -> None:
        self.flight = fl.FlightClient(f"grpc://{address}")
        self.schema = schema
        self.writer, self.reader = self.flight.do_put(SCHEDULE, schema)

    def send(self, batch: pa.RecordBatch) -> Any:
        self.writer.write_batch(batch)
        return self.answer()

    def answer(self) -> Any:
        buffer = self.reader.read()
        return None if buffer is None else decode_answer(buffer.to_pybytes())


def batch(**columns: Any) -> pa.RecordBatch:
    rows = max((len(c) for c in columns.values() if c is not None), default=1)
    base = {"topic": pa.array(["t"] * rows), "body": pa.array([b"b"] * rows, pa.binary())}
    given = {**base, **columns}
    return pa.record_batch({n: c for n, c in given.items() if c is not None})


def ints(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int64())


BAD: dict[str, tuple[pa.RecordBatch, type[TarryError], str, int | None]] = {
    "oversize body": (
        batch(body=pa.array([b"", bytes(5 << 20)], pa.binary()), delay_ms=ints(0, 0)),
        MessageTooLargeError, "4194304", 1,
    ),
    "bad topic": (batch(topic=pa.array(["t", "t t"]), delay_ms=ints(0, 0)), InvalidMessageError, "'t t'", 1),
    "empty topic": (batch(topic=pa.array([""]), delay_ms=ints(0)), InvalidMessageError, "allowed", 0),
    "null topic": (batch(topic=pa.array(["t", None]), delay_ms=ints(0, 0)), InvalidMessageError, "null", 1),
    "null body": (batch(body=pa.array([None], pa.binary()), delay_ms=ints(0)), InvalidMessageError, "null", 0),
    "no topic": (batch(topic=None, delay_ms=ints(0)), InvalidMessageError, "'topic' is missing", None),
    "no due": (batch(), InvalidMessageError, "exactly one of", None),
    "two dues": (batch(due_ms=ints(1), delay_ms=ints(1)), InvalidMessageError, "exactly one", 0),
    "unknown column": (batch(delay_ms=ints(0), bdoy=ints(0)), InvalidMessageError, "'bdoy'", None),
    "naive due": (batch(due=pa.array([0], pa.timestamp("ms"))), InvalidMessageError, "time zone", None),
    "NaN delay": (batch(delay_ms=pa.array([float("nan")])), InvalidMessageError, "double", None),
    "text delay": (batch(delay=pa.array(["30m"])), InvalidMessageError, "duration", None),
    "negative delay": (batch(delay_ms=ints(0, 0, -5)), InvalidMessageError, "-5", 2),
    "delay beyond the limit": (batch(delay_ms=ints(1 << 50)), DelayTooLongError, "limit", 0),
    "negative ttl": (batch(delay_ms=ints(0, 0), ttl_ms=ints(5, -1)), InvalidMessageError, "-1", 1),
    "no rows": (
        batch(topic=pa.array([], pa.string()), body=pa.array([], pa.binary()), delay_ms=ints()),
        InvalidMessageError, "no rows", None,
    ),
    "texts that are not UTF-8": (
        batch(topic=pa.array([b"\xff\xfe"], pa.binary()).view(pa.string()), delay_ms=ints(0)),
        InvalidMessageError, "UTF8", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_refused_batch_names_the_problem_and_leaves_the_stream_usable(case: str, common: Any) -> None:
    bad, kind, problem, row = BAD[case]
    put = Put(common.address, bad.schema)
    for _ in range(2):
        error = put.send(bad)
        assert type(error) is kind
        assert problem in str(error)
        assert error.row == row
    assert common.broker.pending() == []
    put.writer.close()


def test_a_good_batch_after_a_refused_one(served: Any) -> None:
    good, bad = batch(delay_ms=ints(60_000, 120_000)), batch(delay_ms=ints(60_000, -1))
    put = Put(served.address, good.schema)
    assert isinstance(put.send(good), AcceptedAnswer)
    assert isinstance(put.send(bad), InvalidMessageError)
    answer = put.send(good)
    assert (answer.first_seq, answer.rows) == (2, 2)
    assert answer.due_ms is not None
    assert answer.due_ms[1] - answer.due_ms[0] == 60_000
    put.writer.close()
    [topic] = served.broker.pending()
    assert topic.pending == 4


def test_due_times_come_back_only_where_the_broker_resolved_them(served: Any) -> None:
    old_ms = 946_684_800_000  # 2000 begins
    put = Put(served.address, batch(due_ms=ints(old_ms)).schema)
    assert put.send(batch(due_ms=ints(old_ms))).due_ms is None
    put.writer.close()
    stamped = batch(due=pa.array([old_ms * 1000 + 1], pa.timestamp("us", "UTC")))
    put = Put(served.address, stamped.schema)
    np.testing.assert_array_equal(put.send(stamped).due_ms, [old_ms + 1])
    put.writer.close()


def test_large_batches_pass(served: Any) -> None:
    # gRPC's own default limit is 4 MiB a message.
    large = batch(body=pa.array([bytes(1 << 20)] * 40, pa.binary()), delay_ms=ints(*[60_000] * 40))
    put = Put(served.address, large.schema)
    assert put.send(large).rows == 40
    put.writer.close()


def test_an_unknown_descriptor(served: Any) -> None:
    flight = fl.FlightClient(f"grpc://{served.address}")
    for descriptor in (fl.FlightDescriptor.for_path("nothing"), fl.FlightDescriptor.for_command(b"schedule")):
        writer, reader = flight.do_put(descriptor, batch(delay_ms=ints(0)).schema)
        assert reader.read() is None
        with pytest.raises(fl.FlightServerError) as caught:
            writer.close()
        assert decode_error(caught.value.extra_info).code == "not_found"
    assert len(list(flight.do_action("ping"))) == 1


def test_a_column_whose_name_is_no_text(served: Any, caplog: pytest.LogCaptureFixture) -> None:
    # The whole stream has that column, so it ends.
    put = Put(served.address, pa.schema([pa.field(b"caf\xe9", pa.string())]))
    with pytest.raises(fl.FlightServerError, match="allowed: UTF-8") as caught:
        # The schema is refused: the next write may find the stream ended already.
        put.writer.write_batch(pa.RecordBatch.from_arrays([pa.array(["x"])], schema=put.schema))
        assert put.answer() is None
        put.writer.close()
    assert decode_error(caught.value.extra_info).code == "invalid_argument"
    assert "Traceback" not in caplog.text


def test_metadata_without_a_batch_is_refused_like_a_batch(served: Any) -> None:
    good = batch(delay_ms=ints(0))
    put = Put(served.address, good.schema)
    put.writer.write_metadata(pa.py_buffer(b"garbage"))
    assert put.answer().code == "invalid_argument"
    assert isinstance(put.send(good), AcceptedAnswer)
    put.writer.close()


class SlowCore:
    """A broker that answers when the test says so."""

    config = Config()
    identities = ()
    credential_uses = CredentialUses()
    epoch = None
    clock = SystemClock()

    def __init__(self) -> None:
        self.submitted: list[tuple[pa.RecordBatch, Callable[[Any], None]]] = []
        self.came = threading.Condition()

    def listen_to_identities(self, on_change: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    def submit(self, data: pa.RecordBatch, done: Callable[[Any], None], *, lead: bool = False, **_: bool) -> None:
        if data.num_rows == 3:
            raise OverloadedError("full")
        if data.num_rows == 4:
            raise RuntimeError("a secret of the implementation")
        with self.came:
            self.submitted.append((data, done))
            self.came.notify_all()

    def wait_for(self, count: int) -> None:
        with self.came:
            assert self.came.wait_for(lambda: len(self.submitted) >= count, 10)


class Answered:
    def __init__(self, first_seq: int, rows: int) -> None:
        self.first_seq, self.due_ms, self.token = first_seq, np.zeros(rows, np.int64), bytes(8)
        self.placed: Any = None


def test_answers_are_pipelined_and_come_in_the_order_of_the_batches() -> None:
    core = SlowCore()
    sizes = [1, 2, 3, 1, 4, 2]
    batches = [batch(delay_ms=ints(*[0] * size)) for size in sizes]
    with FlightFront.start(core, "127.0.0.1:0") as front:  # type: ignore[arg-type]
        put = Put(front.address, batches[0].schema)
        for each in batches:
            put.writer.write_batch(each)
        core.wait_for(4)  # all were read before any was answered
        for place in (3, 1, 2, 0):  # and durable in another order
            data, done = core.submitted[place]
            done(Answered(place, data.num_rows))
        answers = [put.answer() for _ in batches]
        put.writer.close()
    assert [getattr(a, "first_seq", None) for a in answers] == [0, 1, None, 2, None, 3]
    assert isinstance(answers[2], OverloadedError)
    assert "secret" not in str(answers[4])
    assert answers[4].code == "internal"


LEAVING = """
import sys, time
import pyarrow as pa, pyarrow.flight as fl
batch = pa.record_batch({"topic": ["t"], "body": [b"b"], "delay_ms": [0]})
writer, _ = fl.FlightClient("grpc://" + sys.argv[1]).do_put(fl.FlightDescriptor.for_path("schedule"), batch.schema)
writer.write_batch(batch)
time.sleep(60)
"""


def test_a_client_that_is_killed_before_its_answers_disturbs_nobody() -> None:
    core = SlowCore()
    good = batch(delay_ms=ints(0))
    with FlightFront.start(core, "127.0.0.1:0") as front:  # type: ignore[arg-type]
        leaving = subprocess.Popen([sys.executable, "-c", LEAVING, front.address])
        core.wait_for(1)
        leaving.kill()
        leaving.wait()
        core.submitted[0][1](Answered(0, 1))
        staying = Put(front.address, good.schema)
        staying.writer.write_batch(good)
        core.wait_for(2)
        core.submitted[1][1](Answered(1, 1))
        assert staying.answer().first_seq == 1
        staying.writer.close()


def test_many_unread_answers_stop_the_reading_and_not_the_broker() -> None:
    core = SlowCore()
    good = batch(delay_ms=ints(0))
    with FlightFront.start(core, "127.0.0.1:0") as front:  # type: ignore[arg-type]
        put = Put(front.address, good.schema)
        for _ in range(300):
            put.writer.write_batch(good)
        core.wait_for(256)
        assert len(core.submitted) == 256
        for place in range(300):
            core.wait_for(place + 1)
            core.submitted[place][1](Answered(place, 1))
        assert [put.answer().first_seq for _ in range(300)] == list(range(300))
        put.writer.close()


def test_a_stopping_front_says_goodbye_and_refuses_what_comes_after(served: Any) -> None:
    good = batch(delay_ms=ints(60_000))
    put = Put(served.address, good.schema)
    assert isinstance(put.send(good), AcceptedAnswer)
    stopping = threading.Thread(target=served.front.stop, args=(30,))
    stopping.start()
    assert isinstance(put.answer(), Goodbye)
    assert put.send(good).code == "unavailable"
    put.writer.close()
    stopping.join(10)
    assert not stopping.is_alive()


def test_stopping_cuts_a_client_that_does_not_react(served: Any) -> None:
    good = batch(delay_ms=ints(60_000))
    put = Put(served.address, good.schema)
    assert isinstance(put.send(good), AcceptedAnswer)
    served.front.stop(grace_s=0.1)
    assert isinstance(put.answer(), Goodbye)
    assert put.answer() is None
    with pytest.raises(fl.FlightUnavailableError):
        put.writer.close()
