"""The machine of ``test_broker_machine`` with all that changes messages: cancel, move, keys, ids sent again, series."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.examples import examples
from tests.model.test_broker_machine import TOPICS, BrokerMachine, ModelMessage

from tarry.api.outcome import Outcome
from tarry.base.errors import KeyExistsError, OverloadedError
from tarry.repeat import Repeat

SERIES = "series"


@dataclass
class Rhythm:
    """What the model knows of a series. ``ended_ms``: when cancelling it was answered with "done"."""

    start_ms: int
    every_ms: int
    times: int
    handle: str = ""
    perhaps: bool = False  # scheduling or cancelling it crashed
    ended_ms: int | None = None
    seen: dict[int, int] = field(default_factory=dict)


REPLACES = ("replace", "if_pending")
"""Policies by which a pending message is cancelled."""


class ChangesMachine(BrokerMachine):
    def start_more(self) -> None:
        self.keys: dict[tuple[str, str], str] = {}
        self.key_turn = 0
        self.either: list[tuple[str, str]] = []
        self.series: dict[str, Rhythm] = {}

    # -- cancel and reschedule ---------------------------------------------------------------------------------------

    def candidates(self) -> list[str]:
        """Messages with a handle, of which the model is sure."""
        unsure = {i for pair in self.either for i in pair}
        return [i for i, m in self.messages.items() if m.accepted and m.handle and i not in unsure]

    def judge(self, m: ModelMessage, outcome: Outcome) -> None:
        """Whether an answer fits what the model knows."""
        self.latest_ms = max(self.latest_ms, self.clock.now_ms())
        soonest_ms = m.due_ms if m.other_due_ms is None else min(m.due_ms, m.other_due_ms)
        if outcome is Outcome.DONE:
            assert not m.delivered or m.perhaps_back, "it was delivered"
            assert not m.ended, "it was cancelled before"
        elif outcome is Outcome.DELIVERED:
            assert soonest_ms <= self.latest_ms, "it was not due yet"
            assert not m.ended
        elif outcome is Outcome.CANCELLED:
            assert m.ended or m.perhaps_ended
        else:
            assert self.power_failures, "unknown, though nothing was lost"
            # The registry was lost with the power. What was pending is in it again; of what was delivered or cancelled
            # the name may be gone: the pipeline stores no message whose cancellation comes with it.
            assert soonest_ms <= self.latest_ms or m.ended or m.perhaps_ended, "it is pending"

    @precondition(lambda self: self.candidates())
    @rule(data=st.data())
    def cancel(self, data) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.candidates()), min_size=1, max_size=5))
        outcomes = self.guarded(lambda: self.broker.cancel_many([self.messages[i].handle for i in ids]))
        if outcomes is None:
            for i in ids:
                self.messages[i].perhaps_ended = True
            return
        for i, outcome in zip(ids, outcomes, strict=True):
            m = self.messages[i]
            self.judge(m, outcome)
            m.ended |= outcome is Outcome.DONE or (outcome is Outcome.CANCELLED and m.perhaps_ended)

    @precondition(lambda self: self.candidates())
    @rule(data=st.data(), delay_ms=st.sampled_from([0, 30, 2_000, 100_000]))
    def reschedule(self, data, delay_ms: int) -> None:
        former = data.draw(st.sampled_from(self.candidates()))
        m, due = self.messages[former], self.clock.now_ms() + delay_ms
        # The message keeps its id: the model tells it from the former one by its key in `known` alone.
        moved = self.guarded(lambda: self.broker.reschedule(m.handle, due=due))
        if moved is None:
            # Where it is now is not known any more; nothing more is asked of it.
            m.perhaps_ended, m.handle, m.other_due_ms, m.moved = True, "", due, True
            return
        if moved.outcome is not Outcome.DONE:
            self.judge(m, moved.outcome)
            return
        self.judge(m, Outcome.DONE)
        assert moved.receipt.due_ms == due
        m.due_ms, m.handle, m.moved = due, moved.receipt.handle, True
        if m.due_ms <= self.clock.now_ms():
            self.latest_ms = max(self.latest_ms, m.due_ms)
        for name, holder in self.keys.items():
            if holder == former:
                assert self.broker.find_key(*name) is None or self.broker.find_key(*name).due_ms == due

    # -- keys --------------------------------------------------------------------------------------------------------

    @rule(
        topic=st.sampled_from(TOPICS),
        key=st.sampled_from(["k1", "k2"]),
        delay_ms=st.sampled_from([0, 50, 3_000, 200_000]),
        policy=st.sampled_from(["replace", "keep", "refuse", "if_pending"]),
    )
    def schedule_key(self, topic: str, key: str, delay_ms: int, policy: str) -> None:
        id, due = f"m{self.next_id}", self.clock.now_ms() + delay_ms
        self.next_id += 1
        name = (topic, f"{key}.{self.key_turn}")
        former = self.keys.get(name)
        before = None if former is None else self.messages[former]
        self.messages[id] = new = ModelMessage(topic, due, accepted=False, born_ms=self.clock.now_ms())
        try:
            receipt = self.guarded(
                lambda: self.broker.schedule(topic, b"k", due=due, id=id, key=name[1], on_key=policy)
            )
        except (KeyExistsError, OverloadedError) as error:
            del self.messages[id]
            if isinstance(error, KeyExistsError):
                assert policy == "refuse"
                self.judge_kept(before)
            return
        if receipt is None:
            self.ask_after_crash(name, former, id, policy)
            return
        if receipt.outcome == "kept":
            del self.messages[id]
            assert policy == "keep"
            self.judge_kept(before)
            assert receipt.due_ms in (before.due_ms, before.other_due_ms)
            return
        if receipt.outcome == "not_pending":
            del self.messages[id]  # delivering it would be an error from now on
            assert policy == "if_pending"
            assert before is None or before.ended or before.perhaps_ended or before.due_ms <= self.latest()
            return
        new.accepted, new.handle = True, receipt.handle
        self.keys[name] = id
        if receipt.outcome == "replaced":
            assert policy in REPLACES
            self.judge(before, Outcome.DONE)
            before.ended = True
        else:
            assert (receipt.outcome, policy == "if_pending") == ("scheduled", False)
            assert before is None or before.ended or before.perhaps_ended or before.due_ms <= self.latest()

    def ask_after_crash(self, name: tuple[str, str], former: str | None, id: str, policy: str) -> None:
        """Scheduling ``id`` under a key crashed: all of it happened or nothing did, and the broker says which.

        It has to be asked: whoever cancels by that key from now on cancels what is pending under it, the new message
        or the former, and is told "done" of either.
        """
        found = self.broker.find_key(*name)
        before, new, latest = None if former is None else self.messages[former], self.messages[id], self.latest()
        certain = before is not None and not (before.ended or before.perhaps_ended)
        waits = before is not None and min(before.due_ms, before.other_due_ms or before.due_ms) > latest
        if found is not None:
            assert found.id in (id, former)
            happened = found.id == id
        elif new.due_ms > latest:
            # It would wait under its key if it were there; and so would the former.
            happened = False
            assert not (certain and waits), "replaced by nothing"
        elif certain and waits:
            happened = True  # else the former would be there: the new one has fallen due
        else:
            # Both may have fallen due, and left the key. Nobody knows who had it, so it is not used again.
            if certain and policy in REPLACES:
                self.either.append((former, id))
                before.perhaps_ended = True
            self.keys.pop(name, None)
            self.key_turn += 1
            return
        if happened:
            self.keys[name], new.accepted = id, True
            if found is not None:
                assert found.due_ms == new.due_ms
                new.handle = found.handle
            if waits:
                assert not certain or policy in REPLACES
                before.ended = True
            elif before is not None and policy in REPLACES:
                before.perhaps_ended = True
            return
        del self.messages[id]  # delivering it would be an error from now on
        if found is not None:
            self.judge_kept(before)
            assert found.due_ms in (before.due_ms, before.other_due_ms)
            # That cancelling or moving it crashed before is cleared up with it.
            before.due_ms, before.other_due_ms, before.handle = found.due_ms, None, found.handle
            before.perhaps_ended = False

    def latest(self) -> int:
        self.latest_ms = max(self.latest_ms, self.clock.now_ms())
        return self.latest_ms

    def judge_kept(self, before: ModelMessage | None) -> None:
        assert before is not None
        assert not before.ended
        assert not before.delivered or before.perhaps_back

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def cancel_key(self, data) -> None:
        name = data.draw(st.sampled_from(sorted(self.keys)))
        m = self.messages[self.keys[name]]
        outcome = self.guarded(lambda: self.broker.cancel_key(*name))
        if outcome is None:
            m.perhaps_ended = True
            return
        self.judge(m, outcome)
        m.ended |= outcome is Outcome.DONE

    # -- ids ---------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.power_failures == 0 and self.candidates())
    @rule(data=st.data())
    def send_again(self, data) -> None:
        """A producer that did not hear the answer; the registry was never lost."""
        id = data.draw(st.sampled_from(self.candidates()))
        m, now = self.messages[id], self.clock.now_ms()
        if m.bulk or now - m.born_ms >= 600_000:
            return
        try:
            receipt = self.guarded(lambda: self.broker.schedule(m.topic, b"again", delay=1, id=id))
        except OverloadedError:
            return
        if receipt is not None:
            assert receipt.outcome == "duplicate"
            assert receipt.id == id

    # -- series ------------------------------------------------------------------------------------------------------

    @rule(delay_ms=st.sampled_from([0, 700, 4_000]), every=st.sampled_from([1, 30]), times=st.integers(1, 4))
    def schedule_series(self, delay_ms: int, every: int, times: int) -> None:
        id, due = f"s{self.next_id}", self.clock.now_ms() + delay_ms
        self.next_id += 1
        rhythm = self.series[id] = Rhythm(due, every * 1000, times)
        rule = Repeat.every(every, times=times)
        try:
            receipt = self.guarded(lambda: self.broker.schedule(SERIES, b"s", due=due, id=id, repeat=rule))
        except OverloadedError:
            del self.series[id]
            return
        if receipt is None:
            rhythm.perhaps = True
        else:
            rhythm.handle = receipt.handle

    @precondition(lambda self: any(r.handle for r in self.series.values()))
    @rule(data=st.data())
    def cancel_series(self, data) -> None:
        r = self.series[data.draw(st.sampled_from(sorted(i for i, r in self.series.items() if r.handle)))]
        outcome = self.guarded(lambda: self.broker.cancel(r.handle))
        if outcome is None:
            r.perhaps = True
        elif outcome is Outcome.DONE:
            assert r.ended_ms is None
            assert len(r.seen) < r.times
            r.ended_ms = self.latest()
        elif outcome is Outcome.DELIVERED:
            assert r.start_ms + (r.times - 1) * r.every_ms <= self.latest()
        elif outcome is Outcome.CANCELLED:
            assert r.ended_ms is not None or r.perhaps
        else:
            assert self.power_failures

    @rule()
    def receive_series(self) -> None:
        batch = self.guarded(lambda: self.broker.receive(SERIES, "g", max_messages=1000))
        if batch is not None and batch.num_rows:
            self.take_series(batch)
            self.guarded(lambda: self.broker.ack(SERIES, "g", batch["lease"].to_numpy(), batch["offset"].to_numpy()))

    def take_series(self, batch) -> None:
        now = self.clock.now_ms()
        for id, due in zip(batch["id"].to_pylist(), batch["due_ms"].to_pylist(), strict=True):
            r = self.series[id]
            place, rest = divmod(due - r.start_ms, r.every_ms)
            assert rest == 0
            assert 0 <= place < r.times
            assert due <= now, "early"
            assert r.ended_ms is None or due <= r.ended_ms, "it was cancelled before"
            r.seen[place] = r.seen.get(place, 0) + 1
            # What falls due after the last crash comes once: no crash leaves two occurrences that each go on.
            assert r.seen[place] == 1 or due <= self.crashed_ms, "twice without a crash"

    def check_more(self, end_ms: int) -> None:
        ends = [r.start_ms + r.times * r.every_ms for r in self.series.values()]
        end = max([end_ms, self.clock.now_ms(), *ends]) + 1
        self.broker.advance_to(end)
        for _ in range(1000):
            batch = self.broker.receive(SERIES, "g", max_messages=1000)
            if not batch.num_rows:
                break
            self.take_series(batch)
            self.broker.ack(SERIES, "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())
        for id, r in self.series.items():
            places = sorted(r.seen)
            assert places == list(range(len(places))), f"{id}: a gap in {places}"
            if r.ended_ms is None and not r.perhaps:
                assert len(places) == r.times, f"{id}: {places} of {r.times}"
        for former, new in self.either:
            assert self.messages[former].delivered or self.messages[new].delivered, "replaced by nothing"


TestChangesMachine = ChangesMachine.TestCase
TestChangesMachine.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class Drawn:
    """What a rule draws, where a test says it."""

    def __init__(self, value: object) -> None:
        self.value = value

    def draw(self, strategy: object) -> object:
        return self.value


class FixedChoice(random.Random):
    """For :meth:`FaultyFiles.lose_unsynced`. 0: nothing is kept, and the registry is gone; 1: all of it is kept."""

    def __init__(self, place: int) -> None:
        super().__init__(0)
        self.place = place

    def choice(self, seq):
        return seq[self.place]


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("steps", range(1, 5))  # before and after the write, before and after the fsync
@pytest.mark.parametrize(("former", "policy"), [("gone", "refuse"), ("pending", "replace")])
def test_a_key_is_cancelled_after_scheduling_under_it_crashed(former: str, policy: str, steps: int, kept: int) -> None:
    """Two sequences that the machine found, shrunk. The broker cancelled what was pending under the key, and said so;
    the model took it for the former message, which had been cancelled before, or then missed either of the two.
    """
    machine, name = ChangesMachine(), ("a", "k1.0")
    machine.start(horizon_ms=50, segment_bytes=1 << 20, wheel_bytes=1 << 20, seed=0)
    machine.rng = FixedChoice(kept)
    machine.schedule_key(topic="a", key="k1", delay_ms=3_000, policy="replace")
    if former == "gone":
        machine.cancel_key(data=Drawn(name))
    machine.crash_soon(steps=steps)
    machine.schedule_key(topic="a", key="k1", delay_ms=3_000, policy=policy)
    assert machine.power_failures == 1
    stored = steps > 3 or (kept and steps > 1)
    assert machine.keys[name] == ("m1" if stored else "m0")
    machine.cancel_key(data=Drawn(name))
    assert all(m.ended for m in machine.messages.values())
    machine.teardown()


def test_the_key_of_what_was_cancelled_is_unknown_when_the_registry_was_lost() -> None:
    """A sequence that the machine found, shrunk: the pipeline stored message and cancellation together, so neither the
    store nor the intake has the message, nor its key. Its handle says where it was; that place is cancelled.
    """
    machine, name = ChangesMachine(), ("a", "k1.0")
    machine.start(horizon_ms=50, segment_bytes=4096, wheel_bytes=1 << 20, seed=0)
    machine.rng = FixedChoice(0)
    machine.schedule_key(topic="a", key="k1", delay_ms=200_000, policy="replace")
    machine.cancel_key(data=Drawn(name))
    machine.pipeline_commits(crash_before_commit=False, part=1.0)
    for _ in range(3):
        machine.schedule(topic="b", delays=[0] * 12, past=False, body=300)
        machine.step()
        machine.pipeline_commits(crash_before_commit=False, part=1.0)
        machine.step()
    assert machine.broker.intake_state()["first_seq"] > 1, "the segment of the message was deleted"
    assert machine.broker.cancel_key(*name) == "cancelled"
    machine.power_fails_now()
    assert machine.broker.cancel_key(*name) == "unknown"
    assert machine.broker.cancel(machine.messages["m0"].handle) == "cancelled"
    machine.cancel_key(data=Drawn(name))
    machine.teardown()


@pytest.mark.parametrize("back_ms", [0, 500])
def test_what_was_cancelled_is_unknown_when_the_registry_was_lost(back_ms: int) -> None:
    """Found by the machine: the log had let go of message and cancellation, and the clock stood at its due time, or
    before it; then the answer was "delivered".
    """
    machine = ChangesMachine()
    machine.start(horizon_ms=50, segment_bytes=4096, wheel_bytes=1 << 20, seed=0)
    machine.rng = FixedChoice(0)
    machine.schedule(topic="a", delays=[0], past=False, body=300)
    machine.cancel(data=Drawn(["m0"]))
    for _ in range(3):
        machine.schedule(topic="b", delays=[0] * 12, past=False, body=300)
        machine.step()
    machine.step()
    assert machine.broker.intake_state()["first_seq"] > 1, "the segment of the message was deleted"
    machine.clock_steps_back(back_ms=back_ms)
    machine.power_fails_now()
    assert machine.broker.cancel(machine.messages["m0"].handle) == "unknown"
    machine.cancel(data=Drawn(["m0"]))
    machine.teardown()
