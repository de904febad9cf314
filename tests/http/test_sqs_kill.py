"""kill -9 of the broker while boto3 sends and receives by SQS's API.

What was answered holds: it comes, not before its time, and what was deleted does not come again. A FIFO queue's message
groups keep their order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from botocore.exceptions import HTTPClientError

from tests.compat.lmstfy.serving import Served, served
from tests.http.sqs_place import Client, client_at, make_queue, received
from tests.waiting import wait_until

pytestmark = pytest.mark.rest

KILLS, LEAST = 3, 40
VISIBLE_S = 2
WAITING_MAX = 100
"""Messages that wait to be received, about: then who sends receives, so that the end does not take long."""
GROUPS = ("a", "b")
_NUMBERS = count()


class Ledger:
    """What programs were answered, over all lives of the broker."""

    def __init__(self) -> None:
        self.sent: set[str] = set()
        self.came: dict[str, None] = {}
        """Bodies in the order in which they came first."""
        self.deleted: set[str] = set()
        self.early: list[str] = []
        self.again: list[str] = []
        """What was deleted, and came again."""
        self._lock = threading.Lock()

    def take(self, message: dict[str, object]) -> None:
        """Note a message that came. Its body is a number and its delay in seconds, or a group and a number."""
        body, told = str(message["Body"]), message["Attributes"]
        assert isinstance(told, dict)
        delay_s = 0 if body[0] in GROUPS else int(body.partition("/")[2])
        with self._lock:
            if time.time() * 1000 < int(told["SentTimestamp"]) + delay_s * 1000:
                self.early.append(body)
            if body in self.deleted:
                self.again.append(body)
            self.came.setdefault(body)


def at(place: Served) -> Client:
    return client_at(f"http://{place.host}:{place.port}")


def send(client: Client, urls: dict[str, str], ledger: Ledger) -> None:
    if len(ledger.sent) - len(ledger.deleted) > WAITING_MAX:
        receive(client, urls, ledger, "q")
        return
    bodies = [f"{next(_NUMBERS)}/{delay_s}" for delay_s in (0, 0, 1)]
    entries = [
        {"Id": str(place), "MessageBody": body, "DelaySeconds": int(body[-1])} for place, body in enumerate(bodies)
    ]
    answer = client.send_message_batch(QueueUrl=urls["q"], Entries=entries)
    ledger.sent.update(bodies[int(each["Id"])] for each in answer["Successful"])


def send_in_order(client: Client, urls: dict[str, str], ledger: Ledger, group: str) -> None:
    body = f"{group}/{next(_NUMBERS)}"
    client.send_message(QueueUrl=urls["f.fifo"], MessageBody=body, MessageGroupId=group)
    ledger.sent.add(body)


def receive(client: Client, urls: dict[str, str], ledger: Ledger, queue: str) -> int:
    messages = received(client, urls[queue], WaitTimeSeconds=1, MaxNumberOfMessages=10)
    for message in messages:
        ledger.take(message)
        client.delete_message(QueueUrl=urls[queue], ReceiptHandle=message["ReceiptHandle"])
        ledger.deleted.add(message["Body"])
    return len(messages)


def works(client: Client, urls: dict[str, str], ledger: Ledger) -> Iterator[Callable[[], object]]:
    yield lambda: send(client, urls, ledger)
    for group in GROUPS:
        yield lambda group=group: send_in_order(client, urls, ledger, group)  # type: ignore[misc]
    for queue in ("q", "q", "f.fifo"):
        yield lambda queue=queue: receive(client, urls, ledger, queue)  # type: ignore[misc]


def until_it_ends(work: Callable[[], object]) -> None:
    try:
        while True:
            work()
    except HTTPClientError:
        return  # the broker was killed


def live(place: Served, urls: dict[str, str], ledger: Ledger) -> None:
    """Work in all ways at once until the broker is killed, which is soon."""
    sent, deleted = len(ledger.sent), len(ledger.deleted)
    threads = [
        threading.Thread(target=until_it_ends, args=(work,), daemon=True) for work in works(at(place), urls, ledger)
    ]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: min(len(ledger.sent) - sent, len(ledger.deleted) - deleted) >= LEAST)
    finally:
        place.process.kill()
        place.process.wait()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_what_was_answered_holds(tmp_path: Path) -> None:
    ledger, urls = Ledger(), {}
    for _ in range(KILLS):
        with served(tmp_path / "data") as place:
            client = at(place)
            for name, more in (("q", {}), ("f.fifo", {"ContentBasedDeduplication": "true"})):
                urls[name] = make_queue(client, name, VisibilityTimeout=str(VISIBLE_S), **more)
            live(place, urls, ledger)
    with served(tmp_path / "data") as place:
        client = at(place)
        for name in urls:
            urls[name] = client.get_queue_url(QueueName=name)["QueueUrl"]
        wait_until(lambda: sum(receive(client, urls, ledger, name) for name in urls) == 0 and not left(client, urls))
    assert not ledger.sent - ledger.came.keys(), "what was sent is lost"
    assert (ledger.early, ledger.again) == ([], [])
    for group in GROUPS:
        numbers = [int(body[2:]) for body in ledger.came if body[0] == group]
        assert numbers == sorted(numbers)


def left(client: Client, urls: dict[str, str]) -> int:
    """How many messages there are in any state."""
    names = [f"ApproximateNumberOfMessages{each}" for each in ("", "NotVisible", "Delayed")]
    return sum(
        int(text)
        for url in urls.values()
        for text in client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"].values()
    )
