"""The demo's arithmetic on hand-made data: what is wrong must be found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tarry_demo.account import Account, Downtime, account_of, first_hand_outs, percentiles
from tarry_demo.facts import Facts, KillFacts, StoreFacts, wrong_with

T = 1_800_000_000_000
"""When the first message of these tests is due; another each 10 ms."""


def accepted(*rows: int, due_ms: dict[int, int] | None = None) -> pa.Table:
    """Row ``r`` has seq ``100 + r``."""
    due = {r: T + 10 * r for r in rows} | (due_ms or {})
    return pa.table(
        {
            "row": pa.array(rows, pa.int64()),
            "seq": pa.array([100 + r for r in rows], pa.int64()),
            "due_ms": pa.array([due[r] for r in rows], pa.int64()),
            "exact": pa.array([1] * len(rows), pa.int64()),
        }
    )


def delivered(*hand_outs: tuple[int, float], **instead: dict[int, int]) -> pa.Table:
    """Hand-outs as (row, how many milliseconds late); ``instead`` changes a column at places."""
    rows = [row for row, _ in hand_outs]
    columns: dict[str, list[int]] = {
        "row": rows,
        "seq": [100 + r for r in rows],
        "due_ms": [T + 10 * r for r in rows],
        "handed_out_ns": [(T + 10 * r) * 1_000_000 + round(late * 1e6) for r, late in hand_outs],
    }
    for name, values in instead.items():
        for place, value in values.items():
            columns[name][place] = value
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def account(sent: pa.Table, got: pa.Table, rows: int = 10, outage: Downtime | None = None) -> Account:
    return account_of(sent, got, rows=rows, outage=outage)


def test_all_is_well() -> None:
    found = account(accepted(0, 1, 2), delivered((0, 1.0), (1, 0.0), (2, 3.5)))
    assert (found.accepted, found.delivered) == (3, 3)
    assert (found.lost, found.duplicated, found.early, found.unanswered, found.strange) == (0, 0, 0, 0, 0)
    assert found.lateness_ms == {"p50": 1.0, "p99": 3.5, "p99.9": 3.5, "max": 3.5}


def test_nothing_at_all() -> None:
    found = account(accepted(), delivered())
    assert (found.accepted, found.delivered, found.lost, found.early) == (0, 0, 0, 0)
    assert found.herd is None
    assert found.lateness_ms == {}


def test_what_was_never_delivered_is_lost() -> None:
    found = account(accepted(0, 1, 2), delivered((0, 1.0), (2, 1.0)))
    assert (found.accepted, found.delivered, found.lost) == (3, 2, 1)


def test_a_duplicate_does_not_make_up_for_a_loss() -> None:
    found = account(accepted(0, 1), delivered((0, 1.0), (0, 2.0)))
    assert (found.delivered, found.lost, found.duplicated) == (1, 1, 1)


def test_a_microsecond_early_is_early() -> None:
    assert account(accepted(0), delivered((0, -0.001))).early == 1
    assert account(accepted(0), delivered((0, 0.0))).early == 0


def test_early_is_measured_by_the_due_time_that_the_producer_was_told() -> None:
    # The delivered message says itself that it was due 5 ms sooner.
    found = account(accepted(0), delivered((0, -4.0), due_ms={0: T - 5}))
    assert found.early == 1
    assert found.strange == 1


def test_a_second_hand_out_that_is_early_counts_too() -> None:
    assert account(accepted(0), delivered((0, 1.0), (0, -1.0))).early == 1


def test_content_that_belongs_to_another_message_is_strange() -> None:
    assert account(accepted(0, 1), delivered((0, 1.0), (1, 1.0), row={1: 0})).strange == 1


def test_a_message_that_nobody_sent_is_strange() -> None:
    assert account(accepted(0), delivered((0, 1.0), (77, 1.0))).strange == 1


def test_a_seq_that_was_given_twice_is_strange() -> None:
    assert account(pa.concat_tables([accepted(0), accepted(0)]), delivered((0, 1.0))).strange == 1


def test_what_was_accepted_without_an_answer_is_no_duplicate() -> None:
    # Row 1 was sent twice; the answer to the first, seq 900, was lost with the broker.
    found = account(accepted(0, 1), delivered((0, 1.0), (1, 1.0), (1, 1.0), seq={1: 900}))
    assert (found.lost, found.duplicated, found.unanswered, found.strange) == (0, 0, 1, 0)


def test_lateness_is_that_of_the_first_hand_out_in_whatever_order_they_are_noted() -> None:
    got = delivered((0, 900.0), (1, 2.0), (0, 1.0))
    firsts = first_hand_outs(accepted(0, 1), got)
    assert firsts.due_ms.tolist() == [T, T + 10]
    assert firsts.late_ms == pytest.approx([1.0, 2.0])


def test_percentiles_are_values_that_were_measured() -> None:
    found = percentiles(np.arange(1.0, 1001.0))
    assert found == {"p50": 501.0, "p99": 991.0, "p99.9": 1000.0, "max": 1000.0}
    assert percentiles(np.empty(0)) == {}


def test_what_fell_due_while_the_broker_was_down_is_told_apart() -> None:
    # Row 1 was due before the kill, at T + 25, and still waited; row 3 fell due in the outage, row 5 between serving
    # again and the next hand-out.
    outage = Downtime(T + 25, T + 45, next_hand_out_ms=T + 55)
    got = delivered((0, 1.0), (1, 46.0), (3, 30.0), (5, 6.0), (7, 2.0))
    found = account(accepted(0, 1, 3, 5, 7), got, outage=outage)
    assert found.lateness_ms["max"] == 46.0
    assert found.due_in_outage == 1
    assert found.lateness_up_ms["max"] == 46.0
    assert found.delayed_by_kill == 3
    assert found.lateness_calm_ms["max"] == 2.0
    assert outage.seconds == pytest.approx(0.020)
    assert outage.gap_s == pytest.approx(0.030)


def test_duplicates_of_the_kill_are_those_on_both_sides_of_it() -> None:
    outage = Downtime(T + 25, T + 45)
    got = delivered((0, 1.0), (0, 60.0), (7, 1.0), (7, 2.0))
    found = account(accepted(0, 7), got, outage=outage)
    assert (found.duplicated, found.duplicated_by_kill) == (2, 1)


def test_the_largest_herd_and_its_last() -> None:
    same = dict.fromkeys((1, 2, 3), T + 500)
    got = delivered((0, 1.0), (1, 490.5), (2, 483.0), (3, 470.25), due_ms={1: T + 500, 2: T + 500, 3: T + 500})
    found = account(accepted(0, 1, 2, 3, due_ms=same), got).herd
    assert found is not None
    assert (found.due_ms, found.messages, found.in_outage) == (T + 500, 3, False)
    assert found.last_late_ms == pytest.approx(3.0)


def test_what_is_due_at_once_because_it_was_held_up_makes_no_herd() -> None:
    sent = accepted(0, 1, 2, due_ms={1: T + 50, 2: T + 50})
    sent = sent.set_column(3, "exact", pa.array([1, 0, 0]))
    herd = account(sent, delivered((0, 1.0))).herd
    assert herd is not None
    assert (herd.due_ms, herd.messages) == (T, 1)


def test_a_herd_that_never_came() -> None:
    herd = account(accepted(0), delivered()).herd
    assert herd is not None
    assert herd.last_late_ms is None


def test_the_busiest_second() -> None:
    due = {0: T, 1: T + 999, 2: T + 1000}
    assert account(accepted(0, 1, 2, due_ms=due), delivered()).busiest_second == 2


# -- the verdict -------------------------------------------------------------------------------------------------------

GOOD = account_of(accepted(0, 1, 2), delivered((0, 1.0), (1, 0.0), (2, 3.5)), rows=3)
STORE = StoreFacts(rows=3, commits=1, files=1, size_bytes=1, committed_seq=103)
KILL = KillFacts(Downtime(T, T + 1), processes=3, gone_s=0.1, left=[], pipeline_back_s=5.0)


def facts(**changes: Any) -> Facts:
    return replace(Facts(3, 5.0, T, fired=3, fired_from_store=2, store=STORE, kill=KILL), **changes)


def test_a_good_run() -> None:
    assert wrong_with(GOOD, facts()) == []
    assert wrong_with(GOOD, facts(kill=None)) == []


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"lost": 1}, "1 messages were lost"),
        ({"early": 2}, "2 hand-outs were early"),
        ({"strange": 1}, "do not fit"),
        ({"accepted": 2}, "1 departures were not accepted"),
    ],
)
def test_messages_that_make_a_run_bad(changed: dict[str, int], says: str) -> None:
    [text] = wrong_with(replace(GOOD, **changed), facts())
    assert says in text


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"fired_from_store": 1}, "only 1 of 3 messages were delivered from the store"),
        ({"store": replace(STORE, rows=1)}, "but Spark wrote 1"),
        ({"undrained": True}, "had not delivered everything"),
        ({"kill": replace(KILL, left=[4711])}, "[4711]"),
        ({"kill": replace(KILL, pipeline_back_s=None)}, "did not come back"),
        ({"stop_code": 7}, "exit code 7"),
        ({"left_at_end": [4712]}, "[4712]"),
    ],
)
def test_what_else_makes_a_run_bad(changed: dict[str, Any], says: str) -> None:
    [text] = wrong_with(GOOD, facts(**changed))
    assert says in text
