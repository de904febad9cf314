"""A crash at every step of what groups make durable: dead letters, respawns, drops, seeks, settings, deletions.

As in ``test_every_step``: each scenario runs once to count its steps, and then once for each step with a crash there,
for each of the ways in which a crash loses what was not synced. What a call that returned has promised must hold; what
a call that crashed would have done may be done or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tarry.base.errors import NotFoundError
from tarry.testing import TestBroker
from tests.crash.tools import LOSSES, PARTS, SMALL, KeepNothing, World, crash_at, steps_of
from tests.groups import drained, ids, of, take

TOPIC, GROUP = "a", "g"
HOUR_MS = 3_600_000


@dataclass
class Story:
    """A broker through one crash, and what its callers know."""

    w: World
    accepted: list[str] = field(default_factory=list)
    acked: set[str] = field(default_factory=set)
    notes: dict[str, Any] = field(default_factory=dict)
    """What is promised by calls that returned; a call that is under way is noted as "… perhaps"."""

    @property
    def b(self) -> TestBroker:
        return self.w.b

    def put(self, *names: str, **message: Any) -> None:
        for name in names:
            self.b.schedule(TOPIC, name.encode(), id=name, **message)
            self.accepted.append(name)
        self.b.step()

    def promise(self, what: str, value: Any, call: Callable[[], object]) -> None:
        self.notes[f"{what} perhaps"] = value
        call()
        del self.notes[f"{what} perhaps"]
        self.notes[what] = value

    def held(self, what: str, default: Any) -> tuple[Any, ...]:
        """The values that may hold now."""
        perhaps = (self.notes[f"{what} perhaps"],) if f"{what} perhaps" in self.notes else ()
        return (self.notes.get(what, default), *perhaps)

    def fail(self) -> None:
        batch = take(self.b)
        if batch.num_rows:
            self.b.nack(TOPIC, GROUP, *of(batch), 0)

    def dead_letters(self) -> list[str]:
        return ids(self.b.dead_letters(TOPIC, GROUP, limit=1000))


def buries(s: Story) -> None:
    """Messages fail until their tries are used up; some are acknowledged, one is retried."""
    s.b.set_group(TOPIC, GROUP, tries=2)
    s.put("m1", "m2", "m3", properties={"p": "x" * 700})
    s.fail()
    s.fail()
    s.b.step()
    s.put("m4")
    batch = take(s.b)
    s.b.nack(TOPIC, GROUP, *of(batch), 0)
    s.b.checkpoint()


def all_is_somewhere(s: Story) -> None:
    s.b.advance(2)
    at_hand = drained(s.b)
    s.b.advance(2)
    assert set(s.accepted) <= {*at_hand, *drained(s.b), *s.dead_letters(), *s.acked}
    assert not set(at_hand) & s.acked


def expires(s: Story) -> None:
    """Late messages: some are dropped, some go to the dead letters."""
    s.b.set_topic(TOPIC, lateness_ms_max=5000)
    s.put("dead1", "dead2", late="dead")
    s.put("kept1", late="deliver")
    s.b.advance(6)
    assert ids(take(s.b)) == ["kept1"]
    s.b.step()
    s.b.checkpoint()


def respawns(s: Story) -> None:
    """Dead letters come back, some are purged."""
    s.b.set_group(TOPIC, GROUP, tries=1)
    s.put("m1", "m2", "m3", "m4")
    s.fail()
    s.b.step()
    dead_letters = s.b.dead_letters(TOPIC, GROUP)
    s.b.respawn(TOPIC, GROUP, offsets=dead_letters["offset"].to_numpy()[:2])
    s.b.step()
    s.acked.update(ids(dead_letters)[2:3])
    s.b.purge(TOPIC, GROUP, offsets=dead_letters["offset"].to_numpy()[2:3])
    batch = take(s.b)
    s.acked.update(ids(batch))
    s.b.ack(TOPIC, GROUP, *of(batch))
    s.b.respawn(TOPIC, GROUP)
    s.b.checkpoint()


def nothing_but_the_purged_is_gone(s: Story) -> None:
    s.b.set_group(TOPIC, GROUP, tries=0)
    s.b.advance(2)
    left = {*drained(s.b), *s.dead_letters()}
    assert set(s.accepted) - s.acked <= left
    if "m4" in s.accepted and not s.notes:
        s.b.respawn(TOPIC, GROUP)
        s.b.step()
        drained(s.b)
        assert s.dead_letters() == []


def keeps(s: Story) -> None:
    """Dead letters are put again, before the segment that they are in is deleted for its age."""
    s.b.set_group(TOPIC, GROUP, tries=1)
    s.put("m1", "m2")
    s.fail()
    s.b.step()
    s.notes["dead"] = s.dead_letters()
    for k in range(2):
        s.w.clock.advance_ms(2 * HOUR_MS)
        for i in range(9):
            s.b.schedule("other", b"x" * 900, id=f"{k}-{i}")
        s.b.step()
        s.b.step()
    assert s.dead_letters() == ["m1", "m2"]


def they_are_there(s: Story) -> None:
    s.b.step()
    assert set(s.notes.get("dead", ())) <= set(s.dead_letters())
    assert s.b.group_info(TOPIC, GROUP).lost == 0 if s.notes.get("dead") else True


def seeks(s: Story) -> None:
    """Back to the earliest, and forward to the latest, with acknowledgements between."""
    s.put("m1", "m2", "m3")
    batch = take(s.b)
    s.b.ack(TOPIC, GROUP, *of(batch, 0, 1))
    s.b.nack(TOPIC, GROUP, *of(batch, 2), 500)
    s.promise("from", ["m1", "m2", "m3"], lambda: s.b.seek(TOPIC, GROUP, "earliest"))
    batch = take(s.b)
    assert ids(batch) == ["m1", "m2", "m3"]
    s.promise("from", ["m2", "m3"], lambda: s.b.ack(TOPIC, GROUP, *of(batch, 0)))
    s.promise("from", [], lambda: s.b.seek(TOPIC, GROUP, "latest"))
    s.b.checkpoint()


def the_seek_holds(s: Story) -> None:
    held = s.held("from", None)
    s.b.advance(1)
    seen = drained(s.b)
    assert held[0] is None or sorted(seen) in [sorted(f) for f in held]


def sets(s: Story) -> None:
    """Settings of groups and topics, one after the other."""
    for tries in (3, 4):
        s.promise("tries", tries, lambda tries=tries: s.b.set_group(TOPIC, GROUP, tries=tries, filter="A"))
    s.promise("late", "dead", lambda: s.b.set_topic(TOPIC, late="dead"))
    s.promise("tries", 16, lambda: s.b.set_group(TOPIC, GROUP, tries=16, filter=""))
    s.promise("late", "drop", lambda: s.b.set_topic(TOPIC, late=""))


def the_settings_hold(s: Story) -> None:
    try:
        tries = s.b.group_info(TOPIC, GROUP).tries
    except NotFoundError:
        tries = None
    assert tries in s.held("tries", None) or s.held("tries", None) == (None, 3)
    assert s.b.topic_info(TOPIC).late in s.held("late", "drop")


def deletes(s: Story) -> None:
    """A group is deleted, and made again, with other settings."""
    s.b.set_group(TOPIC, GROUP, tries=3)
    s.put("m1", "m2")
    batch = take(s.b)
    s.b.ack(TOPIC, GROUP, *of(batch, 0))
    s.promise("there", False, lambda: s.b.delete_group(TOPIC, GROUP))
    s.promise("there", True, lambda: s.b.set_group(TOPIC, GROUP, start="latest", retry="fixed 5s"))
    s.promise("there", False, lambda: s.b.delete_group(TOPIC, GROUP))
    s.b.checkpoint()


def it_is_gone(s: Story) -> None:
    there = [info.group for info in s.b.groups(TOPIC)] == [GROUP]
    assert there in s.held("there", there)
    if s.notes.get("there") is False and "there perhaps" not in s.notes:
        assert s.b.set_group(TOPIC, GROUP).tries == 16
        s.b.step()
        assert drained(s.b) == ["m1", "m2"]


def orders(s: Story) -> None:
    """An ordered, filtered group: blocked, dropped, retried."""
    s.b.set_group(TOPIC, GROUP, ordered=True, filter="A")
    for k in range(4):
        s.put(f"x{k}", f"y{k}", order_key="k", tag="A")
        s.b.schedule(TOPIC, b"", id=f"no{k}", tag="B")
    s.b.step()
    for _ in range(3):
        batch = take(s.b)
        s.acked.update(ids(batch))
        s.b.ack(TOPIC, GROUP, *of(batch))
    s.fail()


def the_order_holds(s: Story) -> None:
    if [info.ordered for info in s.b.groups(TOPIC)] != [True]:
        return
    s.b.advance(60)
    seen = drained(s.b)
    assert seen == sorted(seen, key=[f"{name}{k}" for k in range(4) for name in "xy"].index)
    assert set(s.accepted) <= {*seen, *s.acked}


EVERY = {"nothing": 1, "part": 2, "all": 3}
CASES: list[tuple[Callable[[Story], None], Callable[[Story], None], dict[str, Any]]] = [
    (buries, all_is_somewhere, {}),
    (expires, all_is_somewhere, {}),
    (respawns, nothing_but_the_purged_is_gone, {}),
    (keeps, they_are_there, {"retention_ms": HOUR_MS}),
    (seeks, the_seek_holds, {}),
    (sets, the_settings_hold, {}),
    (deletes, it_is_gone, {}),
    (orders, the_order_holds, {}),
]


def survives(directory: Path, scenario: Any, check: Any, settings: dict[str, Any], step: int | None, loss: str) -> int:
    """Run it, crash it, recover it, crash that as well, check it. The steps of a whole run."""
    s = Story(World(directory, settings={**SMALL, "lease_ms": 3_600_000, **settings}))
    s.w.open()
    start = s.w.files.steps
    crashed = crash_at(lambda: scenario(s), s.w.files, step)
    steps = s.w.files.steps - start
    s.w.crashed(LOSSES[loss](step or 0))
    if crashed and crash_at(s.w.open, s.w.files, 1 + (step or 0) % 5):
        s.w.crashed(LOSSES[loss](step or 0))
    if s.w.broker is None:
        s.w.open()
    s.b.step()
    s.w.crashed(KeepNothing())
    s.w.open()
    check(s)
    s.b.close()
    return steps


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("scenario", "check", "settings"), CASES, ids=[c[0].__name__ for c in CASES])
def test_a_crash_at_every_step_of(
    scenario: Any, check: Any, settings: dict[str, Any], loss: str, part: str, fast_path: Path
) -> None:
    whole = survives(fast_path / "whole", scenario, check, settings, None, loss)
    assert whole > 10
    for step in steps_of(part, range(1, whole + 1, EVERY[loss]), scenario.__name__ + loss):
        try:
            survives(fast_path / str(step), scenario, check, settings, step, loss)
        except BaseException as error:
            error.add_note(f"crashed at step {step} of {whole}, keeping {loss}")
            raise
