"""The last release's client and broker against today's: what each of them said, kept in ``releases``, is understood by
the other one's successor, and what that one says has all that it would read.

A new release adds its file (``tests/contract/older.py`` says how); one that nobody upgrades from any more is removed.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tests.contract.conftest import Served
from tests.contract.older import record

from tarry.api.operation import Action, decoded
from tarry.api.operations import OPERATIONS
from tarry.api.parsing import from_json

RELEASES = sorted(Path(__file__).with_name("releases").glob("*.json"))
ACTIONS = {o.wire.name: o for o in OPERATIONS if isinstance(o.wire, Action)}
SAID = [
    pytest.param(name, said["request"], said["answer"], id=f"{path.stem}-{name}")
    for path in RELEASES
    for name, said in json.loads(path.read_text()).items()
]


def with_more(answer: Any) -> Any:
    """The answer as a newer broker might give it: with fields that nobody knows yet."""
    answer = deepcopy(answer)
    for each in answer if isinstance(answer, list) else [answer]:
        each["newer"] = {"of": "what"}
        for inner in [*each.get("events", ()), *each.get("herds", ()), *each.get("jobs", ())]:
            inner["newer"] = 1
    return answer


@pytest.mark.parametrize(("name", "request_", "answer"), SAID)
def test_todays_client_reads_what_an_older_broker_answers(name: str, request_: Any, answer: Any) -> None:
    codec = ACTIONS[name].wire.codec
    before = decoded(lambda: codec.decode(answer), answer)
    if not (isinstance(answer, dict) and isinstance(before, dict)):
        assert decoded(lambda: codec.decode(with_more(answer)), answer) == before, "and what a newer one adds"


@pytest.mark.parametrize(("name", "request_", "answer"), SAID)
def test_todays_broker_reads_what_an_older_client_asks(name: str, request_: Any, answer: Any) -> None:
    kind = ACTIONS[name]
    if kind.wire_fields():
        from_json(kind, request_ or {})


def test_an_older_client_finds_in_todays_answers_what_it_reads(served: Served) -> None:
    said = record(served)
    missing = [
        f"{path.stem}: {name}{place}"
        for path in RELEASES
        for name, older in json.loads(path.read_text()).items()
        for place in lacking(older["answer"], said[name]["answer"])
    ]
    assert missing == []


def lacking(older: Any, newer: Any, place: str = "") -> list[str]:
    """Where ``newer`` has nothing, or something of another kind."""
    if older is None or (newer is None and not isinstance(older, dict | list)):
        return []
    if isinstance(older, dict) and isinstance(newer, dict):
        gone = [f"{place}.{name}" for name in older if name not in newer]
        inner = [lacking(value, newer[name], f"{place}.{name}") for name, value in older.items() if name in newer]
        return gone + [each for found in inner for each in found]
    if isinstance(older, list) and isinstance(newer, list):
        return lacking(older[0], newer[0], f"{place}[0]") if older and newer else []
    number = (int, float)
    same = isinstance(newer, type(older)) or (isinstance(older, number) and isinstance(newer, number))
    return [] if same else [f"{place}: {older!r:.40} was, {newer!r:.40} is"]


def test_a_group_of_which_little_is_said_is_decoded() -> None:
    info = ACTIONS["group-info"].wire.codec.decode({"topic": "t", "group": "g", "tries": 3})
    assert (info.topic, info.tries, info.lost, info.oldest_due_ms) == ("t", 3, 0, None)
