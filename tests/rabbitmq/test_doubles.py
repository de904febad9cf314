"""The campaign's judge: what a kill explains is counted, and the rest is a fault."""

from __future__ import annotations

import pytest

from tests.rabbitmq.doubles import AFTER_S, BEFORE_S, Kill, Traces, judge, outages

BRIDGE, RABBIT, TARRY = (Kill(100.0, 110.0, kind) for kind in ("bridge", "rabbitmq", "tarry"))


@pytest.mark.parametrize("kill", [BRIDGE, RABBIT])
def test_a_kill_explains_what_was_under_way(kill: Kill) -> None:
    causes, faults = judge(Traces([99.0, 111.0], [98.0]), outages([kill]))
    assert (causes, faults) == ({f"out, {kill.kind}": 1}, [])
    causes, faults = judge(Traces([99.0, 111.0], [98.0, 110.0]), outages([kill]))
    assert (causes, faults) == ({f"in, {kill.kind}": 1}, [])


@pytest.mark.parametrize(
    ("traces", "kill"),
    [
        (Traces([], [98.0]), BRIDGE),
        (Traces([99.0], [98.0, 110.0]), BRIDGE),
        (Traces([99.0, 111.0], [98.0]), TARRY),
        (Traces([99.0, 111.0], [98.0, 110.0]), TARRY),
        (Traces([100 - BEFORE_S - 1, 111.0], [90.0]), BRIDGE),
        (Traces([98.0, 99.0], [97.0]), BRIDGE),
        (Traces([110 + AFTER_S + 1, 130.0], [97.0]), BRIDGE),
        (Traces([99.0, 111.0, 120.0], [90.0, 95.0]), TARRY),
    ],
)
def test_what_nothing_explains(traces: Traces, kill: Kill) -> None:
    assert judge(traces, outages([kill]))[1]


def test_each_time_that_a_program_publishes_again_explains_one() -> None:
    assert judge(Traces([1.0, 2.0], [0.5, 1.5], published_again=1), []) == ({"in, published again": 1}, [])
    assert judge(Traces([1.0, 2.0, 3.0], [0.5, 1.5, 2.5], published_again=1), [])[1]


def test_kills_that_follow_closely_are_one_outage() -> None:
    close = [Kill(100.0, 101.0, "rabbitmq"), Kill(102.0, 140.0, "tarry")]
    assert judge(Traces([99.0, 141.0], [98.0]), outages(close)) == ({"out, rabbitmq": 1}, [])
    assert judge(Traces([139.0, 141.0], [98.0]), outages(close))[1] == []
    assert len(outages([BRIDGE, Kill(110 + AFTER_S + BEFORE_S + 1, 200.0, "tarry")])) == 2
