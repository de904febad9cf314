"""``max_per_second`` holds through the ways of the HTTP port: set by one, obeyed by all.

A rate of one a second: the first receive is given one message of five that are ready, however slow the machine is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tarry.broker import Broker
from tests.http.lmstfy_place import serving as serving_lmstfy
from tests.http.rest import Rest
from tests.http.sqs_place import client_of, make_queue, received
from tests.waiting import wait_until

COUNT = 5


def all_ready(broker: Broker) -> None:
    wait_until(lambda: sum(topic.ready for topic in broker.pending()) == COUNT)


def of_rest(rest: Rest) -> int:
    for _ in range(COUNT):
        rest.schedule()
    all_ready(rest.broker)
    return len(rest.receive(max_messages=10, wait_ms=0))


def of_sqs(rest: Rest) -> int:
    client = client_of(rest)
    queue = make_queue(client)
    for _ in range(COUNT):
        client.send_message(QueueUrl=queue, MessageBody="x")
    all_ready(rest.broker)
    return len(received(client, queue, MaxNumberOfMessages=10, WaitTimeSeconds=0))


@pytest.mark.parametrize("take", [of_rest, of_sqs], ids=["rest", "sqs"])
def test_a_topics_rate_set_by_http_is_obeyed(rest: Rest, take: Callable[[Rest], int]) -> None:
    changed = rest.http.patch("/v1/topics/orders", json={"max_per_second": 1})
    assert changed.status_code == 200, changed.text
    assert rest.get("/v1/topics/orders").json()["max_per_second"] == 1
    assert take(rest) == 1


def test_a_groups_rate_set_by_http_is_obeyed_and_the_rest_comes_later(rest: Rest) -> None:
    changed = rest.http.patch("/v1/topics/orders/groups/g", json={"max_per_second": 1})
    assert changed.status_code == 200, changed.text
    assert of_rest(rest) == 1
    assert len(rest.receive(max_messages=10, wait_ms=10_000)) >= 1, "who waits is given the next one"


def test_lmstfys_consumers_obey_a_topics_rate(tmp_path: Path) -> None:
    with serving_lmstfy(tmp_path / "data") as place:
        for _ in range(COUNT):
            place.publish()
        place.wait_for_size(COUNT)
        [topic] = place.broker.pending()
        place.broker.set_topic(topic.topic, max_per_second=1)
        jobs = place.consume("ns/q?count=10")
        assert len([jobs] if isinstance(jobs, dict) else jobs) == 1
