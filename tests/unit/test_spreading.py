"""The option ``spread``: due times of herds, by the id, by the key, or by chance; on each face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.clock import TestClock
from tarry.base.errors import DelayTooLongError, InvalidArgumentError, InvalidMessageError
from tarry.fronts.rocketmq.common.draft import DraftRules, spread_due_ms
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.message.admission import MessageLimits, admit
from tarry.message.spreading import offset_ms
from tarry.testing import open_broker

NOW_MS = 1_767_225_600_000
DAY_MS = 86_400_000


def admitted(**columns: list[Any]) -> pa.RecordBatch:
    rows = len(next(iter(columns.values())))
    base = {"topic": ["t"] * rows, "body": [b""] * rows}
    if not {"due_ms", "delay_ms"} & columns.keys():
        base["delay_ms"] = [1000] * rows
    return admit(pa.RecordBatch.from_pydict({**base, **columns}), NOW_MS)


@given(st.integers(0, DAY_MS), st.one_of(st.none(), st.text()))
def test_never_before_and_within_the_span(spread_ms: int, name: str | None) -> None:
    if name is not None:
        try:
            name.encode()
        except UnicodeEncodeError:
            return
        assert offset_ms(spread_ms, name) == offset_ms(spread_ms, name)
    assert 0 <= offset_ms(spread_ms, name) < max(1, spread_ms)


def test_a_herd_comes_over_the_whole_span() -> None:
    herd = admitted(spread_ms=[60_000] * 6000, id=[f"m{n}" for n in range(6000)]).column("due_ms").to_pylist()
    again = admitted(spread_ms=[60_000] * 6000, id=[f"m{n}" for n in range(6000)]).column("due_ms").to_pylist()
    assert herd == again
    parts = [(due - NOW_MS - 1000) // 10_000 for due in herd]
    assert min(herd) >= NOW_MS + 1000
    assert {part: parts.count(part) > 800 for part in set(parts)} == dict.fromkeys(range(6), True)
    by_chance = admitted(spread_ms=[60_000] * 100).column("due_ms").to_pylist()
    assert len(set(by_chance)) > 90


def test_by_the_id_and_else_by_the_key() -> None:
    due = (
        admitted(spread_ms=[DAY_MS] * 4, id=["a", None, "a", "b"], key=["k", "a", "l", "k"])
        .column("due_ms")
        .to_pylist()
    )
    assert due[0] == due[1] == due[2] != due[3]
    assert admitted(spread_ms=[None, 0, 1], delay_ms=[5, 5, 5]).column("due_ms").to_pylist() == [NOW_MS + 5] * 3


@pytest.mark.parametrize("id", ["a", "b", "c"])
def test_what_is_refused_is_so_wherever_it_came_to_lie(id: str) -> None:
    with pytest.raises(InvalidMessageError, match="it would expire at"):
        admitted(spread_ms=[10_000], id=[id], ttl_ms=[10_999])
    assert admitted(spread_ms=[10_000], id=[id], ttl_ms=[11_000]).num_rows == 1
    limits = MessageLimits(delay_ms_max=60_000)
    batch = pa.RecordBatch.from_pydict(
        {"topic": ["t"], "body": [b""], "delay_ms": [59_000], "spread_ms": [1002], "id": [id]}
    )
    with pytest.raises(DelayTooLongError):
        admit(batch, NOW_MS, limits)
    with pytest.raises(InvalidMessageError, match="a day"):
        admitted(spread_ms=[DAY_MS + 1])
    with pytest.raises(InvalidMessageError, match='row 1: spread and repeat are both given; allowed: "spread" of'):
        admitted(spread_ms=[None, 5], repeat=[None, '{"every": "1h"}'])


def test_the_receipt_has_the_final_time(tmp_path: Path) -> None:
    with open_broker(tmp_path / "data") as broker:
        due_ms = broker.clock.now_ms() + 60_000
        receipt = broker.schedule("t", b"x", due=due_ms, spread="1h", id="order-7")
        assert receipt.due_ms == due_ms + offset_ms(3_600_000, "order-7")
        again = broker.schedule("t", b"x", due=due_ms, spread="1h", id="order-7")
        assert (again.due_ms, again.outcome) == (receipt.due_ms, "duplicate")
        broker.advance_to(receipt.due_ms - 1)
        assert broker.peek("t").num_rows == 0
        broker.advance("1ms")
        assert broker.peek("t").column("id").to_pylist() == ["order-7"]
        for wrong in (0, -1, "2d"):
            with pytest.raises((InvalidMessageError, InvalidArgumentError), match="spread"):
                broker.schedule("t", b"x", spread=wrong)


def test_a_property_of_rocketmq() -> None:
    clock, rules = TestClock(NOW_MS), DraftRules(1000, 1000, DAY_MS, (1000,))
    for due_ms in (None, NOW_MS + 5000):
        found = spread_due_ms({"TARRY_SPREAD_MS": "60000"}, due_ms, "m", clock, rules)
        assert found == (due_ms or NOW_MS) + offset_ms(60_000, "m")
    assert spread_due_ms({"TARRY_SPREAD_MS": "0"}, None, "m", clock, rules) is None
    assert spread_due_ms({}, 7, "m", clock, rules) == 7
    for wrong in ("", "-1", "1h", str(DAY_MS + 1)):
        with pytest.raises(Refusal, match="TARRY_SPREAD_MS"):
            spread_due_ms({"TARRY_SPREAD_MS": wrong}, None, "m", clock, rules)
    with pytest.raises(Refusal, match="delay_ms_max"):
        spread_due_ms({"TARRY_SPREAD_MS": "1002"}, NOW_MS + rules.delay_ms_max - 1000, "m", clock, rules)
