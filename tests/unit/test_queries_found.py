"""What somebody has listed, looked at one by one: a message wherever it is, its handle, series, herds."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tarry.api.row_schemas import FOUND
from tarry.base.errors import InvalidArgumentError
from tarry.repeat import Repeat
from tarry.testing import TestBroker, open_broker

DAY_MS = 86_400_000


def only(broker: TestBroker, **asked: object) -> pa.RecordBatch:
    page = broker.list_pending(**asked)
    assert page.cursor is None
    return page.rows


@pytest.mark.parametrize("delay", ["5s", "2d"])
def test_a_message_is_found_with_its_body_until_it_is_gone(tmp_path: Path, delay: str) -> None:
    with open_broker(tmp_path) as broker:
        receipt = broker.schedule("orders", b"unpaid?", delay=delay, key="k")
        found = broker.get_message(receipt.seq, receipt.due_ms)
        assert found.schema == FOUND
        assert found.select(["body", "key", "offset"]).to_pylist() == [{"body": b"unpaid?", "key": "k", "offset": None}]
        assert broker.get_message(receipt.seq, receipt.due_ms + 1).num_rows == 0
        broker.advance(delay)
        assert broker.get_message(receipt.seq, receipt.due_ms).column("offset").to_pylist() == [0]


def test_handles_of_listed_messages_cancel_and_move(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        for body in (b"one", b"two"):
            broker.schedule("orders", body, delay="2d")
        rows = only(broker, topic="orders")
        one, two = broker.get_handles(rows.column("seq").to_pylist(), rows.column("due_ms").to_pylist())
        assert broker.cancel(one) == "done"
        moved = broker.reschedule(two, delay="3d")
        assert moved.outcome == "done"
        assert only(broker).column("body").to_pylist() == [b"two"]
        assert [event.event for event in broker.history(one).events] == ["accepted", "cancelled"]
        with pytest.raises(InvalidArgumentError, match="2 seqs and 1 due times"):
            broker.get_handles([1, 2], [3])


def test_series_are_listed_alone_and_a_handle_of_an_occurrence_ends_one(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("orders", b"once", delay="1h")
        broker.schedule("orders", b"often", delay="1h", repeat=Repeat.every("1h"))
        broker.advance("2h")  # its second occurrence has a number of its own
        [row] = only(broker, repeating=True).to_pylist()
        assert row["body"] == b"often"
        [handle] = broker.get_handles([row["seq"]], [row["due_ms"]])
        assert broker.cancel(handle) == "done"
        assert only(broker, repeating=True).num_rows == 0
        broker.advance("5h")
        assert only(broker).num_rows == 0


def test_a_forecast_names_its_herds(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        now_ms = broker.clock.now_ms()
        for hours, count in ((3, 200), (1, 150), (2, 99)):
            table = pa.table({"topic": ["orders"] * count, "body": [b""] * count})
            due_ms = pa.array([now_ms + hours * 3_600_000] * count, pa.int64())
            broker.schedule_batch(table.append_column("due_ms", due_ms))
        forecast = broker.forecast(unit="hour")
        assert [(h.due_ms - now_ms, h.rows) for h in forecast.herds] == [(3_600_000, 150), (10_800_000, 200)]
        assert forecast.herd in forecast.herds
