"""Tries that are used up: what becomes of the message, whatever fails meanwhile; respawn, purge, retention."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.faults import FaultyFiles
from tests.groups import SMALL, ack, drained, fail, ids, nack, of, put, says, take

from tarry.base.clock import TestClock
from tarry.base.errors import InvalidArgumentError, NotFoundError, StaleLeaseError
from tarry.message.dead_topics import PREFIX, dead_topic
from tarry.message.topics import check_topic
from tarry.testing import open_broker

HOUR_MS = 3_600_000


# -- where they go ---------------------------------------------------------------------------------------------------


def test_names_of_dead_letter_topics_are_topic_names_and_no_two_groups_share_one() -> None:
    topics = ["a", "a/b", "a/", "a//b", "%DLQ%a", "t" * 255, "x" * 240]
    groups = ["g", "b/g", "b", "/g", "@", "g@c", "ü", "g" * 255, "tarry", "/"]
    names = {dead_topic(t, g) for t in topics for g in groups}
    assert len(names) == len(topics) * len(groups)
    for name in names:
        assert check_topic(name).startswith(PREFIX)
    assert dead_topic("orders/eu", "billing") == "%DLQ%orders/eu/billing"
    assert dead_topic("a", "g@c") == dead_topic("a", "g@c") != "%DLQ%a/g@c"


# -- how they come about ---------------------------------------------------------------------------------------------


def test_a_message_that_always_fails_is_dead_with_the_cause(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        born = broker.clock.now_ms()
        broker.set_group("a", "g", tries=3)
        broker.schedule("a", b"body", id="m", key="k", tag="t", properties={"p": "1"}, ttl=9000, delay=1)
        broker.advance(1)
        for attempt in (1, 2):
            batch = take(broker)
            assert batch["attempt"].to_pylist() == [attempt]
            nack(broker, batch)
        assert broker.dead_letters("a", "g").num_rows == 0
        nack(broker, take(broker), delay_ms=50_000)  # the last: there is nothing to wait for
        assert take(broker).num_rows == 0
        broker.advance(100)
        assert take(broker).num_rows == 0
        dead_letters = broker.dead_letters("a", "g")
        [dead_letter] = dead_letters.to_pylist()
        assert {n: dead_letter[n] for n in ("body", "key", "tag", "id", "born_ms", "attempt", "topic")} == {
            "body": b"body", "key": "k", "tag": "t", "id": "m", "born_ms": born, "attempt": 3, "topic": "%DLQ%a/g",
        }  # fmt: skip
        assert (dead_letter["expire_ms"], dead_letter["repeat"]) == (None, None)
        assert says(dead_letters) == [
            {
                "p": "1",
                "tarry.dead.topic": "a",
                "tarry.dead.group": "g",
                "tarry.dead.cause": "tries",
                "tarry.dead.attempts": "3",
                "tarry.dead.due_ms": str(born + 1000),
                "tarry.dead.at_ms": str(born + 1000),
                "tarry.dead.seq": "0",
            }
        ]
        info = broker.group_info("a", "g")
        assert (info.dead, info.lag, info.burying) == (1, 0, 0)


def test_sixteen_tries_by_default(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        put(broker, "a", "m")
        for attempt in range(1, 17):
            batch = take(broker)
            assert batch["attempt"].to_pylist() == [attempt]
            nack(broker, batch)
        assert take(broker).num_rows == 0
        broker.step()
        assert broker.group_info("a", "g").dead == 1


def test_a_message_has_its_own_number_of_tries(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", tries=2)
        put(broker, "a", "once", tries=1)
        put(broker, "a", "twice")
        put(broker, "a", "often", tries=4)
        dead: list[list[str]] = []
        for _ in range(4):
            nack(broker, take(broker))
            broker.step()
            dead.append(ids(broker.dead_letters("a", "g")))
        assert dead == [["once"], ["once", "twice"], ["once", "twice"], ["once", "twice", "often"]]
        broker.set_group("b", "g", tries=0)
        put(broker, "b", "once", tries=1)
        put(broker, "b", "ever")
        for _ in range(40):
            nack(broker, take(broker, "b"), topic="b")
        assert ids(take(broker, "b")) == ["ever"], "no limit, but for the message that has its own"


def test_a_consumer_that_leases_and_dies(tmp_path: Path) -> None:
    with open_broker(tmp_path, lease_ms=1000) as broker:
        broker.set_group("a", "g", tries=3)
        put(broker, "a", "poison", "fine")
        for attempt in (1, 2, 3):
            batch = take(broker)
            assert batch["attempt"].to_pylist()[0] == attempt
            if attempt == 1:
                ack(broker, batch, 1)
            broker.advance(1)
        assert take(broker).num_rows == 0
        broker.step()
        assert ids(broker.dead_letters("a", "g")) == ["poison"]
        with pytest.raises(StaleLeaseError):
            ack(broker, batch)


def test_a_consumer_that_goes_counts_as_a_try(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", tries=2)
        put(broker, "a", "m")
        for _ in range(2):
            consumer = broker.subscribe("a", "g")
            assert consumer.fetch(1, 0) is not None
            consumer.close()
        assert take(broker).num_rows == 0
        broker.step()
        assert broker.dead_letters("a", "g")["attempt"].to_pylist() == [2]


def test_fewer_tries_reach_what_waits_already(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        put(broker, "a", "m")
        fail(broker, 5)
        broker.set_group("a", "g", tries=3)
        assert take(broker).num_rows == 0
        broker.step()
        assert broker.dead_letters("a", "g")["attempt"].to_pylist() == [5]


def test_other_groups_do_not_notice(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", tries=1)
        put(broker, "a", "m")
        fail(broker, 1)
        assert ids(take(broker, group="h")) == ["m"]
        assert [broker.group_info("a", n).dead for n in ("g", "h")] == [1, 0]
        assert [i.group for i in broker.groups("a")] == ["g", "h"]


def test_dead_letters_are_an_ordinary_topic_whose_failures_are_not_copied_again(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", tries=1)
        put(broker, "a", "m", tries=1)
        fail(broker, 1)
        topic = dead_topic("a", "g")
        for _ in range(30):
            nack(broker, take(broker, topic, "h"), topic=topic, group="h")
        batch = take(broker, topic, "h")
        assert (ids(batch), batch["attempt"].to_pylist()) == (["m"], [31])
        ack(broker, batch, topic=topic, group="h")
        assert ids(broker.dead_letters("a", "g")) == ["m"], "what a group of it takes stays"
        assert [(i.topic, i.group) for i in broker.groups()] == [(topic, "h"), ("a", "g")], "not the keeper"
        with pytest.raises(InvalidArgumentError, match="tries is 3 for dead letters; allowed: 0"):
            broker.set_group(topic, "h", tries=3)
        with pytest.raises(InvalidArgumentError, match="is for dead letters"):
            broker.set_topic(topic, late="drop")
        with pytest.raises(InvalidArgumentError, match=r"begins without 'tarry\.'"):
            broker.receive(topic, "tarry.dead")


# -- copies that fail ------------------------------------------------------------------------------------------------


def test_a_full_disk_keeps_a_message_until_its_copy_is_durable(tmp_path: Path) -> None:
    files = FaultyFiles()
    with open_broker(tmp_path, files=files) as broker:
        broker.set_group("a", "g", tries=1)
        put(broker, "a", "m", "n")
        batch = take(broker)
        files.full_directory = "intake"
        nack(broker, batch)
        info = broker.group_info("a", "g")
        assert (info.burying, info.lag, info.dead) == (2, 2, 0)
        assert take(broker).num_rows == 0, "it was its last try"
        broker.advance(2)
        assert broker.group_info("a", "g").burying == 2, "tried again, in vain"
        files.full_directory = ""
        broker.advance(1)
        broker.step()
        assert ids(broker.dead_letters("a", "g")) == ["m", "n"]
        assert broker.group_info("a", "g").lag == 0


def test_a_refused_copy_is_found_again_after_a_restart(tmp_path: Path) -> None:
    clock = TestClock()
    files = FaultyFiles()
    with open_broker(tmp_path, files=files, clock=clock) as broker:
        broker.set_group("a", "g", tries=2)
        put(broker, "a", "m", "n")
        nack(broker, take(broker))
        batch = take(broker)
        ack(broker, batch, 1)
        files.full_directory = "intake"
        nack(broker, batch, 0)
    files.full_directory = ""
    with open_broker(tmp_path, files=files, clock=clock) as broker:
        assert take(broker).num_rows == 0
        broker.step()
        assert broker.dead_letters("a", "g")["attempt"].to_pylist() == [2]


@pytest.mark.rest
def test_many_are_copied_in_parts(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", tries=1)
        put(broker, "a", *[str(k) for k in range(2500)])
        nack(broker, take(broker, limit=2500))
        broker.step()
        info = broker.group_info("a", "g")
        assert (info.dead, info.lag) == (2500, 0)
        found, after = [], None
        while (page := broker.dead_letters("a", "g", limit=700, after=after)).num_rows:
            assert page.num_rows <= 700
            found += ids(page)
            after = page["offset"][-1].as_py()
        assert found == [str(k) for k in range(2500)]


# -- respawn and purge -----------------------------------------------------------------------------------------------


def make_dead(broker: Any, *names: str) -> None:
    broker.set_group("a", "g", tries=1)
    put(broker, "a", *names, properties={"p": "1"})
    fail(broker, 1)
    assert ids(broker.dead_letters("a", "g")) == list(names)


def test_a_respawned_message_is_tried_anew_by_its_group_alone(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.group("a", "other")
        make_dead(broker, "m", "n")
        assert drained(broker, group="other") == ["m", "n"]
        [offset, _] = broker.dead_letters("a", "g")["offset"].to_pylist()
        assert broker.respawn("a", "g", offsets=[offset, 77]) == 1
        broker.step()
        assert ids(broker.dead_letters("a", "g")) == ["n"]
        batch = take(broker)
        assert (ids(batch), batch["attempt"].to_pylist(), says(batch)) == (
            ["m"],
            [1],
            [{"p": "1", "tarry.only": "g"}],
        )
        assert take(broker, group="other").num_rows == 0
        assert take(broker, group="new").num_rows == 2, "those of before"
        assert broker.group_info("a", "other").lag == 0
        nack(broker, batch)
        broker.step()
        assert ids(broker.dead_letters("a", "g")) == ["n", "m"], "it may fail again"
        assert "tarry.only" not in says(broker.dead_letters("a", "g"))[1]


def test_respawn_keeps_a_pace(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        make_dead(broker, *"abcdef")
        assert broker.respawn("a", "g", limit=4, per_second=2) == 4
        assert ids(broker.dead_letters("a", "g")) == ["e", "f"]
        seen = []
        for _ in range(5):
            broker.step()
            seen.append(ids(take(broker)))
            broker.advance(0.5)
        assert seen == [["a"], ["b"], ["c"], ["d"], []]
        assert broker.respawn("a", "g") == 2
        assert broker.respawn("a", "g") == 0


def test_purge(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        make_dead(broker, *"abcde")
        offsets = broker.dead_letters("a", "g")["offset"].to_numpy()
        assert broker.purge("a", "g", offsets=offsets[1:3]) == 2
        assert broker.purge("a", "g", offsets=offsets[:2]) == 1
        assert ids(broker.dead_letters("a", "g")) == ["d", "e"]
    with open_broker(tmp_path, clock=clock) as broker:
        assert ids(broker.dead_letters("a", "g")) == ["d", "e"]
        assert broker.purge("a", "g") == 2
        assert broker.group_info("a", "g").dead == 0
        assert broker.purge("a", "g") == 0
        assert broker.purge("never", "was") == 0


def test_a_respawn_that_fails_loses_nothing(tmp_path: Path) -> None:
    from tarry.base.errors import DiskFullError

    files = FaultyFiles()
    with open_broker(tmp_path, files=files) as broker:
        make_dead(broker, *"abc")
        files.full_directory = "intake"
        with pytest.raises(DiskFullError):
            broker.respawn("a", "g")
        files.full_directory = ""
        assert ids(broker.dead_letters("a", "g")) == ["a", "b", "c"]
        assert broker.respawn("a", "g") == 3
        broker.step()
        assert ids(take(broker)) == ["a", "b", "c"]


def test_dead_letters_of_a_deleted_group_can_be_looked_at_and_purged(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        make_dead(broker, "m")
        broker.delete_group("a", "g")
        assert ids(broker.dead_letters("a", "g")) == ["m"]
        with pytest.raises(NotFoundError, match="topic 'a' has no group 'g'"):
            broker.respawn("a", "g")
        assert broker.purge("a", "g") == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda b: b.dead_letters("a", "g", limit=0),
        lambda b: b.dead_letters("a", "g", limit=True),
        lambda b: b.dead_letters("a", "g", after="x"),
        lambda b: b.respawn("a", "g", limit=0),
        lambda b: b.respawn("a", "g", per_second=0),
        lambda b: b.respawn("a", "g", per_second=-1),
        lambda b: b.respawn("a", "g", per_second=float("inf")),
        lambda b: b.respawn("a", "g", per_second=1e-12),
        lambda b: b.respawn("a", "g", per_second=True),
    ],
)
def test_bad_arguments_are_refused(call: Any, tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        make_dead(broker, "m", "n")
        with pytest.raises(InvalidArgumentError, match="allowed"):
            call(broker)
        assert ids(broker.dead_letters("a", "g")) == ["m", "n"]


# -- retention -------------------------------------------------------------------------------------------------------


def pass_days(broker: Any, directory: Path, rounds: int) -> None:
    """Time goes on, and other messages with it, so that the ready log rolls and its old segments go."""
    for k in range(rounds):
        broker.advance("2h")
        put(broker, "other", *[f"{k}-{i}" for i in range(12)], properties={"x": "y" * 900})
        for path in (directory / "ready").glob("*.log"):
            os.utime(path, (1, 1))
        broker.step()


def test_dead_letters_outlive_the_retention(tmp_path: Path) -> None:
    clock = TestClock()
    settings = {**SMALL, "retention_ms": HOUR_MS}
    with open_broker(tmp_path, clock=clock, **settings) as broker:
        make_dead(broker, "m", "n", "o")
        topic = dead_topic("a", "g")
        assert drained(broker, topic, "reader") == ["m", "n", "o"]
        broker.purge("a", "g", offsets=broker.dead_letters("a", "g")["offset"].to_numpy()[1:2])
        first = broker.components.ready.segments[0]
        pass_days(broker, tmp_path, 4)
        assert broker.components.ready.segments[0] > first + 1, "its segment is gone"
        dead_letters = broker.dead_letters("a", "g")
        assert ids(dead_letters) == ["m", "o"]
        assert [p["tarry.dead.cause"] for p in says(dead_letters)] == ["tries"] * 2
        assert take(broker, topic, "reader").num_rows == 0, "a group of that topic does not get them twice"
        info = broker.group_info("a", "g")
        assert (info.dead, info.lost) == (2, 0)
    with open_broker(tmp_path, clock=clock, **settings) as broker:
        pass_days(broker, tmp_path, 3)
        assert ids(broker.dead_letters("a", "g")) == ["m", "o"]
        assert broker.respawn("a", "g") == 2
        broker.step()
        batch = take(broker)
        assert (ids(batch), says(batch)) == (["m", "o"], [{"p": "1", "tarry.only": "g"}] * 2)


def test_a_segment_with_dead_letters_stays_while_they_cannot_be_put_again(tmp_path: Path) -> None:
    settings = {**SMALL, "retention_ms": HOUR_MS}
    files = FaultyFiles()
    with open_broker(tmp_path, files=files, **settings) as broker:
        make_dead(broker, "m")
        first = broker.components.ready.segments[0]
        broker.advance("2h")
        put(broker, "other", *[f"{i}" for i in range(12)], properties={"x": "y" * 900})
        for path in (tmp_path / "ready").glob("*.log"):
            os.utime(path, (1, 1))
        broker.advance("2h")
        assert broker.components.ready.segments[0] > first
        put(broker, "a", "n")
        fail(broker, 1)
        put(broker, "other", *[f"{i}" for i in range(12, 24)], properties={"x": "y" * 900})
        held = broker.components.ready.segments[0]
        files.full_directory = "intake"
        broker.clock.advance_ms(2 * HOUR_MS)
        for path in (tmp_path / "ready").glob("*.log"):
            os.utime(path, (1, 1))
        broker.step()
        assert held <= broker.components.ready.segments[0] <= held + 1
        assert set(ids(broker.dead_letters("a", "g"))) == {"m", "n"}
        files.full_directory = ""
        broker.step()
        broker.step()
        assert broker.components.ready.segments[0] > held
        assert set(ids(broker.dead_letters("a", "g"))) == {"m", "n"}


def test_a_closed_consumer_settles_nothing_of_a_deleted_group(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        put(broker, "a", "m")
        consumer = broker.subscribe("a", "g")
        batch = consumer.fetch(1, 0)
        assert batch is not None
        broker.delete_group("a", "g")
        with pytest.raises(Exception, match="was deleted"):
            consumer.ack(*of(batch))
        assert consumer.fetch(1, 0) is None
        consumer.close()
        with pytest.raises(NotFoundError):
            ack(broker, batch)
