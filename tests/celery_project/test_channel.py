"""A channel of kombu, without workers: what it does with messages that go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection, Queue

import tarry.celery  # noqa: F401  makes tarry:// known
from tests.contract.conftest import Served
from tests.waiting import wait_until


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "data")
    yield served
    served.stop()


def test_what_a_worker_fails_at_counts_as_a_try(served: Served) -> None:
    """Else it would end one worker after the other, for ever."""
    queue = Queue("mail")

    def fail(*_: Any) -> None:
        raise TypeError("no such field")

    with Connection(f"tarry://{served.address}") as connection:
        with connection.Producer() as producer:
            producer.publish({"a": 1}, routing_key="mail", declare=[queue])
        served.broker.set_group("mail", "celery", tries=2, retry="fixed 0s")
        for _ in range(2):
            with connection.Consumer(queue, callbacks=[fail]), pytest.raises(TypeError):
                connection.drain_events(timeout=30)
        wait_until(lambda: served.broker.group_info("mail", "celery").dead == 1)
    [dead] = served.broker.dead_letters("mail", "celery").to_pylist()
    assert dict(dead["properties"])["tarry.dead.reason"].startswith("the worker failed at it: TypeError")
