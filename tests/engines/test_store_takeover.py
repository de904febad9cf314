"""The store of a broker that was taken over while it runs: it commits nothing, and removes nothing of the new owner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tarry.api.operations import GetIntakeState
from tarry.base.errors import OwnershipLostError
from tarry.store import Store
from tarry.store.fence import epoch_id
from tarry.testing import TestBroker, open_broker
from tests.engines.test_broker import Machines, bodies
from tests.engines.versitygw import BUCKET, served
from tests.s3 import set_environment
from tests.unit.test_store_fence import live_at_once


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path, "objects")
    yield machines
    machines.close()


def rows(broker: TestBroker, body: bytes) -> pa.RecordBatch:
    due_ms = pa.array([broker.clock.now_ms() + 3_600_000])
    return pa.record_batch({"topic": ["a"], "due_ms": due_ms, "body": [body]})


def load(broker: TestBroker, job: str, body: bytes) -> None:
    bulk = broker.components.bulk
    attempt = bulk.begin(job)
    bulk.commit(attempt.number, *bulk.stage(attempt.number, [rows(broker, body)]))


def owner_of(machines: Machines) -> int | None:
    return DeltaTable(str(machines.directory / "store")).transaction_version(epoch_id(0))


def epoch_of(broker: TestBroker) -> int | None:
    epoch = broker.call(GetIntakeState())["epoch"]
    assert epoch is None or isinstance(epoch, int)
    return epoch


def test_the_store_is_the_newest_owners(machines: Machines) -> None:
    first = machines.broker()
    load(first, "one", b"1")
    assert (epoch_of(first), owner_of(machines)) == (1, 1)
    second = machines.broker()
    assert (epoch_of(second), owner_of(machines)) == (2, 2)
    assert epoch_of(first) == 1, "its driver works for it, and is refused with it"
    version = second.components.store.snapshot().version
    with pytest.raises(OwnershipLostError):  # by the log, which has the table of jobs; the store would refuse it, too
        load(first, "two", b"2")
    assert second.components.store.snapshot().version == version
    load(second, "three", b"3")
    machines.wait_for_leases()
    second.advance("1h")
    assert bodies(second, "a") == [b"1", b"3"]
    second.close()


def test_the_former_owner_does_not_say_what_became_of_a_job(machines: Machines) -> None:
    first = machines.broker()
    load(first, "one", b"1")
    second = machines.broker()
    load(second, "two", b"2")
    with pytest.raises(OwnershipLostError):
        first.cancel_job("two")  # it would be "unknown", and is pending
    assert second.cancel_job("two").outcome == "done"
    second.close()


def test_the_former_owner_does_not_say_that_a_job_was_delivered(machines: Machines) -> None:
    first = machines.broker()
    load(first, "one", b"1")
    first.advance("1h")
    assert first.cancel_job("one").outcome == "delivered"
    second = machines.broker()
    with pytest.raises(OwnershipLostError):
        first.cancel_job("one")
    second.close()


def test_an_attempt_that_the_new_owner_goes_on_with_keeps_its_files(machines: Machines) -> None:
    first = machines.broker()
    bulk = first.components.bulk
    attempt = bulk.begin("job")
    files, topics = bulk.stage(attempt.number, [rows(first, b"1")])
    second = machines.broker()
    assert second.components.bulk.list("job")[0].number == attempt.number
    second.components.bulk.commit(attempt.number, files, topics)
    with pytest.raises(OwnershipLostError):
        bulk.abort(attempt.number)  # a client that has heard nothing, and gives up at the broker that it knows
    machines.wait_for_leases()
    second.advance("1h")
    assert bodies(second, "a") == [b"1"]
    second.close()


def test_an_owner_that_was_slow_to_open_does_not_take_the_store_back(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It claims the log, stands still, and opens the store when a later owner has it already."""
    machines.broker().close()
    opened, later = Store.open, list[TestBroker]()

    def late(*args: object, **kwargs: object) -> Store:
        if not later:
            monkeypatch.setattr(Store, "open", opened)
            later.append(machines.broker())
        return opened(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "open", late)
    with pytest.raises(OwnershipLostError, match=r"is epoch 3's, not epoch 2's"):
        machines.broker()
    assert owner_of(machines) == 3
    load(later[0], "job", b"1")
    machines.wait_for_leases()
    later[0].advance("1h")
    assert bodies(later[0], "a") == [b"1"]
    later[0].close()


def test_where_nobody_can_be_taken_over_the_store_has_no_epoch(tmp_path: Path) -> None:
    with open_broker(tmp_path / "files") as broker:
        assert epoch_of(broker) is None
        assert DeltaTable(broker.config.store_uri).transaction_version(epoch_id(0)) is None
    machines = Machines(tmp_path, "memory")
    broker = machines.broker()
    assert (epoch_of(broker), owner_of(machines)) == (None, None)
    broker.close()
    machines.close()


@pytest.mark.rest
@pytest.mark.timeout(1800)  # a build takes minutes, once
def test_owners_that_claim_and_commit_at_once_in_an_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server whose conditional PUTs are atomic; as on a disk in ``tests/unit/test_store_fence.py``."""
    with served(tmp_path) as endpoint:
        set_environment(monkeypatch, endpoint, "A", "S")
        for number in range(5):
            live_at_once(f"s3://{BUCKET}/store-{number}")
