"""The checker: right histories pass, and each way to be wrong is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.takeover.events import UNKNOWN, Ack, Cancel, Claim, Delivery, Event, Move, Send, load, save
from tests.takeover.history import check
from tests.takeover.reference import AHEAD_MS, Reference

SEEDS = st.integers(0, 1 << 32)


def right(seed: int, steps: int = 40) -> list[Event]:
    return Reference(random.Random(seed)).run(steps)


@given(seed=SEEDS)
def test_right_histories_pass(seed: int) -> None:
    events = right(seed)
    report = check(events, ahead_ms=AHEAD_MS)
    assert report.violations == [], report.violations[0]
    assert report.counts["delivered"] == len({each.placing for each in events if isinstance(each, Delivery)})


@given(seed=SEEDS, data=st.data())
def test_a_delivery_that_is_missing_is_found(seed: int, data: st.DataObject) -> None:
    """Of a message that was certainly accepted, and that nobody may have cancelled."""
    events = right(seed)
    changed = {each.target for each in events if isinstance(each, Cancel) and each.target is not None}
    sure = [
        each.placing
        for each in events
        if isinstance(each, Send) and each.answer == "scheduled" and each.key is None and each.placing not in changed
    ]
    assume(sure)
    gone = data.draw(st.sampled_from(sure))
    rest = [each for each in events if not (isinstance(each, Delivery | Ack) and (each.name, each.due_ms) == gone)]
    assert check(rest, ahead_ms=AHEAD_MS).kinds == {"lost": 1}


@given(seed=SEEDS, data=st.data())
def test_a_delivery_of_what_was_cancelled_is_found(seed: int, data: st.DataObject) -> None:
    events = right(seed)
    done = [each.target for each in events if isinstance(each, Cancel) and each.answer == "done" and each.target]
    assume(done)
    name, due_ms = data.draw(st.sampled_from(done))
    at_ms = due_ms + data.draw(st.floats(0, 1e5))
    seq = next((each.seq for each in events if isinstance(each, Send) and each.placing == (name, due_ms)), 0)
    came = Delivery(at_ms=at_ms, name=name, due_ms=due_ms, seq=seq or 0)
    report = check([*events, came], ahead_ms=AHEAD_MS)
    assume(not report.counts["undecided"])  # that of a key with too many calls in doubt, which is told as such
    assert "after_done" in report.kinds


def sent(name: str = "m", begin: float = 0, end: float = 1, answer: str = "scheduled", **more: Any) -> Send:
    return Send(begin_ms=begin, end_ms=end, answer=answer, name=name, **{"due_ms": 1000, "seq": 7, **more})


def cancelled(begin: float, end: float, answer: str, **more: Any) -> Cancel:
    return Cancel(begin_ms=begin, end_ms=end, answer=answer, **{"target": ("m", 1000), **more})


def moved(begin: float, end: float, answer: str, due_ms: int = 2000, **more: Any) -> Move:
    return Move(begin_ms=begin, end_ms=end, answer=answer, due_ms=due_ms, **{"target": ("m", 1000), "seq": 8, **more})


def came(at: float = 1000.5, name: str = "m", **more: Any) -> Delivery:
    return Delivery(at_ms=at, name=name, **{"due_ms": 1000, "seq": 7, **more})


def acked(begin: float, end: float, answer: str = "done", **more: Any) -> Ack:
    return Ack(begin_ms=begin, end_ms=end, answer=answer, name="m", due_ms=1000, seq=7, **more)


BY_KEY = {"key": "k", "target": None}
CLAIM = Claim(begin_ms=400, end_ms=450, life=1)

FINE: dict[str, list[Event]] = {
    "delivered": [sent(), came()],
    "delivered again": [sent(), came(), came(1200)],
    "in doubt, not delivered": [sent(answer=UNKNOWN)],
    "in doubt, delivered": [sent(answer=UNKNOWN), came()],
    "in doubt, and carried out after the call": [sent(answer=UNKNOWN, due_ms=0), came(90_000, due_ms=0)],
    "sent again": [sent(answer=UNKNOWN), sent(begin=2, end=3), came()],
    "sent again, a duplicate": [sent(answer=UNKNOWN), sent(begin=2, end=3, answer="duplicate"), came()],
    "cancelled": [sent(), cancelled(2, 3, "done")],
    "cancelled too late": [sent(), came(), cancelled(1001, 1002, "delivered")],
    "cancelled as it fell due": [sent(), cancelled(999, 1001, "delivered"), came(1002)],
    "cancelled before, without an answer": [sent(), cancelled(2, 3, UNKNOWN), cancelled(4, 5, "cancelled")],
    "cancelled in doubt, delivered": [sent(), cancelled(2, 3, UNKNOWN), came()],
    "moved": [sent(), moved(2, 3, "done"), came(2001, due_ms=2000, seq=8)],
    "moved, then the former handle": [
        *(sent(), moved(2, 3, "done"), cancelled(4, 5, "cancelled"), came(2001, due_ms=2000, seq=8)),
    ],
    "moved in doubt": [sent(), moved(2, 3, UNKNOWN), came(2001, due_ms=2000, seq=8)],
    "replaced": [sent(key="k"), sent("n", 2, 3, "replaced", key="k"), came(name="n")],
    "kept": [sent(key="k"), sent("n", 2, 3, "kept", key="k", on_key="keep"), came()],
    "refused": [sent(key="k"), sent("n", 2, 3, "key_exists", key="k", on_key="refuse"), came()],
    "a key that is free again": [sent(key="k"), came(), sent("n", 1001, 1002, key="k"), came(1003, name="n")],
    "a key that is free again, cancelled": [sent(key="k"), came(), cancelled(1001, 1002, "unknown", **BY_KEY)],
    "moved by key": [sent(key="k"), moved(2, 3, "done", **BY_KEY), came(2001, due_ms=2000, seq=8)],
    "taken at a claim": [sent(), CLAIM, cancelled(460, 470, "delivered"), came(life=1)],
    "taken at a claim, with a key": [
        *(sent(key="k"), CLAIM, sent("n", 460, 470, key="k", seq=8), came(life=1), came(1001, name="n", seq=8, life=1)),
    ],
    "acknowledged in doubt": [sent(), came(), acked(1001, 1002, UNKNOWN), came(2000)],
    "on its way as it was acknowledged": [sent(), came(life=1), acked(1001, 1002, life=1), came(1003, life=0)],
    "order": [
        *(sent(order_key="o"), sent("n", due_ms=1100, order_key="o", seq=8)),
        *(came(1200), came(1201, name="n", due_ms=1100, seq=8), came(1202)),
    ],
    "a series": [sent(every_ms=500, times=3), came(), came(1501, due_ms=1500, seq=8), came(2001, due_ms=2000, seq=9)],
    "a series that was cancelled": [
        *(sent(every_ms=500, times=3), came(), cancelled(1400, 1600, "done"), came(1700, due_ms=1500, seq=8)),
    ],
}


@pytest.mark.parametrize("name", FINE)
def test_what_is_right_passes(name: str) -> None:
    assert check(FINE[name]).violations == []


WRONG: dict[str, tuple[str, list[Event]]] = {
    "lost": ("lost", [sent()]),
    "lost after a repetition": ("lost", [sent(answer=UNKNOWN), sent(begin=2, end=3, answer="duplicate")]),
    "lost, and said to be delivered": ("lost", [sent(), cancelled(1001, 1002, "delivered")]),
    "lost after a move": ("lost", [sent(), moved(2, 3, "done")]),
    "lost as it replaced": ("lost", [sent(key="k"), sent("n", 2, 3, "replaced", key="k")]),
    "early": ("early", [sent(), came(999.5)]),
    "delivered after done": ("after_done", [sent(), cancelled(2, 3, "done"), came()]),
    "delivered before done": ("after_done", [sent(), came(1000.5), cancelled(1001, 1002, "done")]),
    "delivered after a move": ("after_done", [sent(), moved(2, 3, "done"), came(), came(2001, due_ms=2000, seq=8)]),
    "delivered after a replacement": (
        "after_done",
        [sent(key="k"), sent("n", 2, 3, "replaced", key="k", seq=8), came(), came(name="n", seq=8)],
    ),
    "delivered, and cancelled by key": ("after_done", [sent(key="k"), cancelled(2, 3, "done", **BY_KEY), came()]),
    "done twice": ("contradiction", [sent(), cancelled(2, 3, "done"), cancelled(4, 5, "done")]),
    "delivered is said too early": ("contradiction", [sent(), cancelled(2, 3, "delivered"), came()]),
    "delivered is said beyond a claim's bound": (
        "contradiction",
        [
            sent(due_ms=10_000),
            CLAIM,
            cancelled(460, 470, "delivered", target=("m", 10_000)),
            came(10_001, due_ms=10_000),
        ],
    ),
    "cancelled by nobody": ("contradiction", [sent(), cancelled(2, 3, "cancelled"), came()]),
    "cancelled later": (
        "contradiction",
        [sent(), cancelled(2, 3, "cancelled"), cancelled(4, 5, "done")],
    ),
    "forgotten": ("contradiction", [sent(), cancelled(2, 3, "unknown"), came()]),
    "a key that is forgotten": ("contradiction", [sent(key="k"), cancelled(2, 3, "unknown", **BY_KEY), came()]),
    "two of a key": (
        "contradiction",
        [sent(key="k"), sent("n", 2, 3, key="k", seq=8), came(), came(name="n", seq=8)],
    ),
    "kept, and there is none": ("contradiction", [sent(key="k", on_key="keep", answer="kept")]),
    "an id that is not known again": ("contradiction", [sent(), sent(begin=2, end=3), came()]),
    "never sent": ("contradiction", [came()]),
    "an id that is two messages": ("twice", [sent(), came(), came(1100, seq=8)]),
    "another number than was said": ("twice", [sent(), came(seq=8)]),
    "after an acknowledgement": ("after_ack", [sent(), came(), acked(1001, 1002), came(1003)]),
    "after an acknowledgement, by a later owner": (
        "after_ack",
        [sent(), came(), acked(1001, 1002), came(1003, life=1)],
    ),
    "out of order": (
        "order",
        [
            *(sent(order_key="o"), sent("n", due_ms=1100, order_key="o", seq=8)),
            *(came(1201), came(1200, name="n", due_ms=1100, seq=8)),
        ],
    ),
    "a series that ends": ("series", [sent(every_ms=500, times=2), came()]),
    "a series that leaves one out": (
        "series",
        [sent(every_ms=500, times=3), came(), came(2001, due_ms=2000, seq=9)],
    ),
    "two series": (
        "twice",
        [sent(every_ms=500, times=2), came(), came(1501, due_ms=1500, seq=8), came(1502, due_ms=1500, seq=9)],
    ),
    "a series that goes on": (
        "series",
        [sent(every_ms=500, times=3), came(), cancelled(1100, 1200, "done"), came(1501, due_ms=1500, seq=8)],
    ),
    "a series of which the last one came, and was cancelled": (
        "series",
        [sent(every_ms=500, times=1), cancelled(1001, 1002, "done"), came()],
    ),
    "a series that two have cancelled": (
        "series",
        [sent(every_ms=500, times=2), cancelled(2, 3, "done"), cancelled(4, 5, "done")],
    ),
    "a series that nobody has cancelled": (
        "series",
        [sent(every_ms=500, times=1), cancelled(2, 3, "cancelled"), came()],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name: str) -> None:
    kind, events = WRONG[name]
    assert set(check(events).kinds) == {kind}


def test_what_is_not_drained_may_still_come() -> None:
    assert check([sent()], drained=False).violations == []
    assert check([sent(), cancelled(1001, 1002, "delivered")], drained=False).violations == []
    assert check([sent(), cancelled(2, 3, "done"), came()], drained=False).kinds == {"after_done": 1}


def test_clocks_that_are_wrong() -> None:
    early = [sent(), came(900), cancelled(901, 902, "delivered")]
    assert check(early, skew_ms=100).violations == []
    assert check(early, skew_ms=99).kinds == {"early": 1}
    assert check([sent(), cancelled(2, 3, "delivered"), came()], skew_ms=100).kinds == {"contradiction": 1}
    late = [sent(end=950, order_key="o"), sent("n", due_ms=1100, order_key="o", seq=8)]
    deliveries = [came(1201), came(1200, name="n", due_ms=1100, seq=8)]
    assert check([*late, *deliveries], skew_ms=60).violations == []
    assert check([*late, *deliveries], skew_ms=40).kinds == {"order": 1}


def in_doubt(count: int) -> list[Event]:
    calls: list[Event] = [sent(key="k"), sent("n", 2, 3, "key_exists", key="k", on_key="refuse")]
    for number in range(count):
        calls.append(sent(f"m{number}", number, number + 1, UNKNOWN, key="k", due_ms=1000 + number))
        calls.append(cancelled(number, number + 1, UNKNOWN, **BY_KEY))
    return calls


@pytest.mark.rest
def test_many_calls_in_doubt() -> None:
    """It would take for ever to try each way in which some of them happened."""
    assert not check(in_doubt(40)).violations
    wrong = cancelled(2000, 2001, "delivered")
    assert check([*in_doubt(3), wrong]).kinds == {"lost": 1}
    undecided = check([*in_doubt(40), wrong])
    assert undecided.counts["undecided"] == 1 and not undecided.violations


def test_counts() -> None:
    acknowledged = FINE["on its way as it was acknowledged"]
    report = check([*acknowledged, came(1000.6), sent("n", answer=UNKNOWN)])
    assert report.counts == {"accepted": 1, "in_doubt": 1, "delivered": 1, "repeated": 2, "stale": 1}


def test_a_history_is_kept_in_a_file_and_told(tmp_path: Path) -> None:
    events = [*right(1), CLAIM]
    save(events, tmp_path / "history")
    assert load(tmp_path / "history") == events
    [violation] = check([sent(), CLAIM, cancelled(460, 470, "done"), came(1003, life=1)]).violations
    lines = str(violation).splitlines()
    assert len(lines) == 5
    assert [line.split()[1] for line in lines[1:]] == ["Send", "Claim", "Cancel", "Delivery"]


@pytest.mark.parametrize("change", [lambda events: events, lambda events: events[::-1]])
def test_the_order_of_events_is_that_of_their_times(change: Callable[[list[Event]], list[Event]]) -> None:
    for _, (kind, events) in WRONG.items():
        assert set(check(change(events)).kinds) == {kind}
