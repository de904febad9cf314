"""Several queues of a topic, each group's positions in them, and the file that keeps them."""

from __future__ import annotations

import json
import shutil
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.api.audit import NOBODY_ASKED
from tarry.api.operations import FollowQueue, GetGroup, Seek
from tarry.broker import Broker
from tarry.broker.verification import plan_checks
from tarry.fronts.kit.loop_thread import THREADS
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode
from tarry.fronts.rocketmq.classic.positions import Positions
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.message.options import ORDER_KEY
from tarry.verify import Finding
from tests.rocketmq_classic.conftest import Place
from tests.rocketmq_classic.remoting import Remoting, messages_of, send_fields
from tests.waiting import wait_until

TOPIC, GROUP = "orders", "g"


def send(client: Remoting, queue: int, body: bytes = b"x") -> None:
    answer = client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC) | {"e": queue}, body)
    assert (answer.code, answer.fields["queueId"]) == (ResponseCode.SUCCESS, str(max(0, queue)))


@given(st.lists(st.tuples(st.integers(0, 1 << 62), st.none() | st.text(max_size=5), st.none() | st.text(max_size=3))))
def test_each_message_is_in_one_queue(rows: list[tuple[int, str | None, str | None]]) -> None:
    properties = [
        [(name, value) for name, value in ((ORDER_KEY, key), ("__QUEUE", chosen)) if value is not None]
        for _, key, chosen in rows
    ]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([seq for seq, _, _ in rows], pa.int64()), pa.array(properties, pa.map_(pa.string(), pa.string()))],
        names=["seq", "properties"],
    )
    numbers = TopicQueues(4).numbers(batch, TOPIC).tolist()
    for (seq, key, chosen), number in zip(rows, numbers, strict=True):
        if chosen is not None and chosen.isascii() and chosen.isdecimal():
            assert number == int(chosen) % 4
        else:
            assert number == (seq if key is None else zlib.crc32(key.encode())) % 4


def test_retries_and_dead_letters_have_one_queue() -> None:
    queues = TopicQueues(4)
    assert [queues.count(topic) for topic in ("a", "%RETRY%g", "%DLQ%g")] == [4, 1, 1]


def test_a_message_is_in_the_queue_that_its_producer_chose(client: Remoting) -> None:
    for queue in (3, 1, 3):
        send(client, queue, str(queue).encode())
    for queue, expected in ((3, [0, 2]), (1, [1])):
        offsets: list[int] = []
        offset = 0
        while len(offsets) < len(expected):
            answer = client.pull(TOPIC, GROUP, offset, queueId=queue)
            messages = messages_of(answer.body)
            assert all((m["queue"], m["body"]) == (queue, str(queue).encode()) for m in messages)
            offsets += [m["offset"] for m in messages]
            offset = int(answer.fields["nextBeginOffset"])
        assert offsets == expected
    assert client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC) | {"e": 4}, b"x").code == (
        ResponseCode.INVALID_PARAMETER
    )


def test_whoever_does_not_choose_fills_all_queues(client: Remoting) -> None:
    for _ in range(8):
        send(client, -1)
    client.pull(TOPIC, "first", 7, queueId=3)
    seen = Counter[int]()
    for queue in range(4):
        seen[queue] = len(messages_of(client.pull(TOPIC, GROUP, 0, queueId=queue).body))
    assert seen == {0: 2, 1: 2, 2: 2, 3: 2}


def test_a_pull_waits_on_while_messages_of_other_queues_come(place: Place, client: Remoting) -> None:
    waiting = client.begin_pull(TOPIC, GROUP, 0, wait_s=15, queueId=2)
    other = place.client()
    for queue in (0, 1, 3):
        send(other, queue)
    send(other, 2, b"mine")
    answer = client.finish(waiting)
    assert [m["body"] for m in messages_of(answer.body)] == [b"mine"]
    assert answer.fields["nextBeginOffset"] == "4"


@pytest.fixture
def broker(place: Place) -> Broker:
    """With four messages, one in each queue."""
    client = place.client()
    for queue in range(4):
        send(client, queue)
    client.pull(TOPIC, "other", 0, queueId=3)
    return place.broker


@pytest.fixture
def open_positions(broker: Broker) -> Iterator[Any]:
    yield lambda count=4: Positions(broker, TopicQueues(count))


def test_the_broker_knows_the_queue_that_is_furthest_behind(broker: Broker, open_positions: Any) -> None:
    positions = open_positions()
    assert positions.find(TOPIC, GROUP, 0) is None
    for queue, offset in ((0, 4), (1, 2), (2, 3)):
        positions.commit(TOPIC, GROUP, queue, offset)
    assert positions.find(TOPIC, GROUP, 3) is None
    positions.commit(TOPIC, GROUP, 3, 4)
    assert broker.call(FollowQueue(TOPIC, GROUP)) == 2
    positions.commit(TOPIC, GROUP, 1, 1)
    assert positions.find(TOPIC, GROUP, 1) == 2
    positions.commit(TOPIC, GROUP, 1, 4)
    assert broker.call(GetGroup(TOPIC, GROUP)).lag == 1


def test_what_a_pull_passed_over_counts_once_all_before_it_is_committed(broker: Broker, open_positions: Any) -> None:
    positions = open_positions()
    positions.commit(TOPIC, GROUP, 0, 0)
    positions.settle(TOPIC, GROUP, {}, {0: (1, 2)})
    positions.settle(TOPIC, GROUP, {}, {0: (2, 4)})
    assert positions.find(TOPIC, GROUP, 0) == 0
    positions.commit(TOPIC, GROUP, 0, 1)
    assert positions.find(TOPIC, GROUP, 0) == 4


def test_positions_are_kept_in_a_file(broker: Broker, open_positions: Any) -> None:
    positions = open_positions()
    for queue, offset in ((0, 4), (1, 1), (2, 3), (3, 1)):
        positions.commit(TOPIC, GROUP, queue, offset)
    positions.save()
    assert [open_positions().find(TOPIC, GROUP, queue) for queue in range(4)] == [4, 1, 3, 1]
    # Of another number of queues, and after the group was sent back by others, they say nothing.
    assert [open_positions(2).find(TOPIC, GROUP, queue) for queue in range(2)] == [1, 1]
    broker.call(Seek(TOPIC, GROUP, "earliest"))
    assert [open_positions().find(TOPIC, GROUP, queue) for queue in range(4)] == [0, 0, 0, 0]


def test_a_reset_is_of_all_queues(broker: Broker, open_positions: Any) -> None:
    positions = open_positions()
    for queue in range(4):
        positions.commit(TOPIC, GROUP, queue, 3)
    assert positions.reset(TOPIC, GROUP, 0, NOBODY_ASKED) == 0
    assert [positions.find(TOPIC, GROUP, queue) for queue in range(4)] == [0, 0, 0, 0]
    assert positions.reset(TOPIC, GROUP, "latest", NOBODY_ASKED) == 4
    assert open_positions().find(TOPIC, GROUP, 2) == 4


def state_file(broker: Broker, name: str = "positions") -> Path:
    path = broker.config.data / "rocketmq" / f"classic-{name}.json"
    path.parent.mkdir(exist_ok=True)
    return path


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"groups": 5}', b'{"version": 1, "groups": [{}]}'])
def test_a_file_that_cannot_be_read_is_no_obstacle(broker: Broker, content: bytes) -> None:
    state_file(broker).write_bytes(content)
    positions = Positions(broker, TopicQueues(4))
    broker.call(FollowQueue(TOPIC, GROUP))
    assert positions.find(TOPIC, GROUP, 1) == 0


def test_files_of_the_first_version_are_read_still(broker: Broker, open_positions: Any) -> None:
    positions = open_positions()
    positions.commit(TOPIC, GROUP, 1, 3)
    positions.reset(TOPIC, GROUP, 0, NOBODY_ASKED)
    for queue in range(4):
        positions.commit(TOPIC, GROUP, queue, queue)
    positions.save()
    path = state_file(broker)
    content = json.loads(path.read_bytes())
    assert (content.pop("version"), content.pop("crc") > 0) == (2, True)
    path.write_text(json.dumps({"version": 1, **content}))
    again = open_positions()
    assert [again.find(TOPIC, GROUP, queue) for queue in range(4)] == [0, 1, 2, 3]
    assert again.resets(GROUP) == 1


def test_a_changed_byte_in_a_file_of_state_is_damage(place: Place, client: Remoting) -> None:
    client.send(TOPIC)
    client.pull_until(1, TOPIC, GROUP)
    modes = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP"}
    body = json.dumps(modes).encode()
    assert client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body).code == ResponseCode.SUCCESS
    client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": f"%DLQ%{GROUP}"})
    place.close()
    place.open()
    place.close()
    data = place.config.data
    store = str(data / "store")

    def damaged() -> list[str]:
        names = {check.kind for check in plan_checks(data, store)}
        assert {"classic-positions.json", "classic-request-modes.json", "classic-dead-queues.json"} <= names
        results = [r for check in plan_checks(data, store) for r in check.results(lambda _: None)]
        return [Path(r.path).name for r in results if isinstance(r, Finding)]

    assert damaged() == []
    for name in ("positions", "request-modes", "dead-queues"):
        path = state_file(place.broker, name)
        path.write_text(path.read_text().replace('"crc": ', '"crc": 1'))
    assert sorted(damaged()) == ["classic-dead-queues.json", "classic-positions.json", "classic-request-modes.json"]
    place.open()


def test_a_commit_that_somebody_waits_for_is_durable(place: Place, client: Remoting, tmp_path: Path) -> None:
    for _ in range(4):
        client.send("orders")
    client.pull_until(4, "orders", "g")
    commit = {"topic": "orders", "consumerGroup": "g", "queueId": 2, "commitOffset": 3}
    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == ResponseCode.SUCCESS
    # As after a power cut: what the disk has at the moment of the answer.
    shutil.copytree(place.config.data, tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock"))
    after = Place(tmp_path / "copy")
    try:
        found = after.client().ask(RequestCode.QUERY_CONSUMER_OFFSET, commit)
        assert found.fields["offset"] == "3"
    finally:
        after.close()


def test_a_oneway_commit_is_carried_out_though_its_client_has_left(
    place: Place, client: Remoting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers commit, and leave."""
    for queue in (0, 1):
        send(client, queue)
        assert client.pull(TOPIC, GROUP, queue, queueId=queue).code == ResponseCode.SUCCESS
    leaving = place.client()
    send(leaving, 2)
    go, commit = threading.Event(), Positions.commit
    begun, committed = list[int](), set[int]()

    def held(positions: Positions, topic: str, group: str, queue: int, offset: int) -> None:
        begun.append(queue)
        assert go.wait(60)
        commit(positions, topic, group, queue, offset)
        committed.add(queue)

    monkeypatch.setattr(Positions, "commit", held)
    code, position = RequestCode.UPDATE_CONSUMER_OFFSET, {"topic": TOPIC, "consumerGroup": GROUP}
    for _ in range(THREADS):
        client.begin(code, position | {"queueId": 0, "commitOffset": 1}, flag=2)
    wait_until(lambda: len(begun) == THREADS)  # none is free for the one that matters
    leaving.begin(code, position | {"queueId": 1, "commitOffset": 2}, flag=2)
    leaving.close()
    for _ in range(2):  # so that the front has seen it leave
        send(client, 2)
    go.set()
    wait_until(lambda: committed == {0, 1})
