"""What the page about groups says of states and defaults is so."""

from __future__ import annotations

import re
from pathlib import Path

from tarry.api.groups import GroupSettings
from tarry.api.settings import TRIES
from tarry.groups.states import TABLE, State, StateEvent

PAGE = (Path(__file__).parents[2] / "docs" / "delivery-groups.md").read_text()


def test_the_table_of_states_is_the_one_that_is_used() -> None:
    documented: dict[tuple[State, StateEvent], State] = {}
    for state, moves in re.findall(r"^\| ([A-Z]+) \| (.*→.*) \|$", PAGE, re.MULTILINE):
        for event, following in re.findall(r"([A-Z_]+) → ([A-Z]+)", moves):
            documented[State[state], StateEvent[event]] = State[following]
    assert documented == TABLE


def test_the_defaults_are_told() -> None:
    assert f"| `tries` | {TRIES} |" in PAGE
    assert GroupSettings() == GroupSettings(
        retry="", tries=TRIES, inflight_max=0, filter="", ordered=False, paused=False, lease_ms=0
    )
