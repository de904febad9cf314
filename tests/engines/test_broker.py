"""A broker on an engine whose logs machines share: another machine goes on where one ended.

In memory, the small files of a data directory (the checkpoint, the secret of handles) are carried over by hand: they
are not in the rounds. The registry of names is not: it is made again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tarry.api.local import any_topic
from tarry.api.operations import GetGroup, GetHistory, GetOverview
from tarry.base.config import Config
from tarry.base.errors import OwnershipLostError, TarryError, UnavailableError
from tarry.broker.engines import LOCAL
from tarry.log.engine import LogEngine
from tarry.log.files import Files
from tarry.log.objects import bases
from tarry.log.objects.engine import ObjectEngine
from tarry.log.objects.lease import LEASE_S, OwnerLease, boot_s
from tarry.testing import TestBroker, TestClock
from tests.crash.tools import SMALL
from tests.engines.memory import MemoryEngine, SharedRounds
from tests.engines.object_store import CutWay, MemoryObjects
from tests.faults import FaultyFiles
from tests.waiting import wait_until


class Machines:
    """Brokers on machines of their own, one store of rounds, one of messages."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.directory, self.clock, self.kind = directory, TestClock(), kind
        self.engines = ExitStack()
        self.rounds, self.objects = SharedRounds(), MemoryObjects()
        self.boot_s = boot_s
        self.skipped_s = 0.0
        self.ways: list[CutWay] = []
        """To the store of rounds, one for each broker of the engine ``objects``."""
        self.files: list[FaultyFiles] = []
        self.settings: dict[str, Any] = {}
        """Of the brokers to come, beside those of all tests."""
        self.number = 0

    def engine(self, files: Files, data: Path, clock: TestClock) -> LogEngine:
        if self.kind == "memory":
            return MemoryEngine(self.rounds, files, data)
        lease = OwnerLease(lambda: self.boot_s() + self.skipped_s)
        self.ways.append(CutWay(self.objects))
        return ObjectEngine(self.ways[-1], files, data, clock, look_s=0.0, local=LOCAL, lease=lease)

    def keys(self, prefix: str) -> set[str]:
        """Names in the store of rounds."""
        return {key for key in list(self.objects.objects) if key.startswith(prefix)}

    def wait_for_leases(self) -> None:
        """Have all leases end. Those that can be renewed are renewed with the next step."""
        self.skipped_s += 2 * LEASE_S

    def broker(self, clock: TestClock | None = None) -> TestBroker:
        """Return one on the next machine; ``clock``: its own, else that of all."""
        clock = clock or self.clock
        self.number += 1
        data = self.directory / str(self.number)
        data.mkdir()
        if self.number > 1 and self.kind == "memory":
            for path in (self.directory / str(self.number - 1)).iterdir():
                if path.is_file() and path.name != "lock":
                    shutil.copy(path, data)
        settings = {"store": str(self.directory / "store"), "pipeline": "off", **SMALL, **self.settings}
        config = Config(data=data, **settings)
        self.files.append(FaultyFiles())
        engine = self.engine(self.files[-1], data, clock)
        self.engines.callback(engine.release)
        return TestBroker(config, clock, self.files[-1], engine=engine, threads=False)

    def close(self) -> None:
        self.engines.close()
        for files in self.files:
            files.close_all()


@pytest.fixture(params=["memory", "objects"])
def machines(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machines]:
    machines = Machines(tmp_path, request.param)
    yield machines
    machines.close()


def bodies(broker: TestBroker, topic: str) -> list[bytes]:
    batch = broker.receive(topic, "g", max_messages=100)
    broker.ack(topic, "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())
    return sorted(batch["body"].to_pylist())


def test_another_machine_has_all_that_was_answered(machines: Machines) -> None:
    first = machines.broker()
    for number in range(200):
        first.schedule("a", f"{number:03}".encode(), delay=1 if number < 50 else 3600, id=f"a{number}")
    cancelled = first.schedule("a", b"cancelled", delay=3600, key="k")
    assert first.cancel(cancelled.handle) == "done"
    first.advance("1.5s")
    done = bodies(first, "a")
    assert len(done) == 50
    # Its machine is gone, and its directory with it.
    second = machines.broker()
    machines.wait_for_leases()
    second.step()
    assert bodies(second, "a") == [], "what was acknowledged comes again"
    [pending] = second.pending()
    assert pending.pending == 150
    assert second.cancel(cancelled.handle) == "cancelled"
    again = second.schedule("a", b"100", delay=1, id="a100")
    assert again.outcome == "duplicate"
    second.advance("1h")
    assert bodies(second, "a") == [f"{number:03}".encode() for number in range(50, 150)]
    second.close()


def keep_base(broker: TestBroker) -> None:
    broker.components.progress.base_s = 0.0
    assert broker.components.progress.checkpoint()
    broker.components.progress.base_s = 1e9


def test_an_owner_whose_former_one_made_no_base_makes_one_at_once(tmp_path: Path) -> None:
    """Else owners that live shorter than it takes to the first would never make one, and claims would take longer."""
    machines = Machines(tmp_path, "objects")
    machines.broker().step()
    second = machines.broker()
    assert not machines.keys("base/"), "the first owner has some seconds"
    second.step()
    [manifest] = (key for key in machines.keys("base/") if key.endswith("manifest"))
    assert manifest.startswith(f"base/{2:020d}-")
    third = machines.broker()
    third.step()
    assert manifest in machines.keys("base/"), "its former owner made one"
    fourth = machines.broker()
    fourth.step()
    # Older bases are deleted behind the new one, beside what goes on.
    wait_until(lambda: {key.split("/")[1].split("-")[0] for key in machines.keys("base/")} == {f"{4:020d}"})
    machines.close()


def test_another_machine_goes_on_from_a_base(tmp_path: Path) -> None:
    machines = Machines(tmp_path, "objects")
    first = machines.broker()
    for number in range(200):
        first.schedule("a", f"{number:03}".encode(), delay=1 if number < 100 else 3600, id=f"a{number}")
    cancelled = first.schedule("a", b"cancelled", delay=3600, key="k")
    assert first.cancel(cancelled.handle) == "done"
    first.set_group("a", "g", tries=7)
    first.advance("1.5s")
    assert len(bodies(first, "a")) == 100
    assert (first.status()["log"]["epoch"], first.status()["log"]["leased"]) == (1, True)
    rounds_before = machines.keys("log/")
    keep_base(first)
    after = first.schedule("a", b"after", delay=3600, key="l")
    kept = first.schedule("b", b"b", delay=1)
    wait_until(lambda: not rounds_before & machines.objects.objects.keys())
    second = machines.broker()
    machines.wait_for_leases()
    second.step()
    assert bodies(second, "a") == [], "what was acknowledged comes again"
    assert second.call(GetGroup("a", "g")).tries == 7
    assert second.cancel(cancelled.handle) == "cancelled"
    assert second.schedule("a", b"100", delay=1, id="a100").outcome == "duplicate"
    assert second.cancel_key("a", "l") == "done" and second.cancel(after.handle) == "cancelled"
    second.advance("1s")
    assert bodies(second, "b") == [b"b"] and second.cancel(kept.handle) == "delivered"
    keep_base(second)
    second.advance("30m")
    second.close()
    third = machines.broker()
    third.advance("30m")
    assert bodies(third, "a") == [f"{number:03}".encode() for number in range(100, 200)]
    keep_base(third)
    keep_base(third)
    wait_until(lambda: len([key for key in machines.keys("base/") if key.endswith("manifest")]) == 1)
    third.close()
    machines.close()


def test_a_base_that_was_given_up_is_made_with_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "PATIENCE_S", 0.0)
    machines = Machines(tmp_path, "objects")
    first = machines.broker()
    first.schedule("a", b"1", delay=60)
    machines.ways[0].cut_keys = "base/"
    with pytest.raises(UnavailableError):
        keep_base(first)
    machines.ways[0].cut_keys = None
    assert not machines.keys("base/")
    assert first.components.progress.checkpoint()
    assert any(key.endswith("/manifest") for key in machines.keys("base/"))
    first.close()
    machines.close()


def test_the_former_owner_answers_nothing(machines: Machines) -> None:
    first = machines.broker()
    first.schedule("a", b"1", delay=1)
    second = machines.broker()
    with pytest.raises(TarryError):
        first.schedule("a", b"2", delay=1)
    machines.wait_for_leases()
    second.advance("1s")
    assert bodies(second, "a") == [b"1"]
    second.close()


def test_the_former_owner_refuses_nothing_for_what_it_remembers(machines: Machines) -> None:
    if machines.kind == "memory":
        pytest.skip("its owners look before they answer only where they write")
    first = machines.broker()
    first.schedule("a", b"1", delay=60, key="k")
    second = machines.broker()
    assert second.cancel_key("a", "k") == "done"
    with pytest.raises(OwnershipLostError):
        first.schedule("a", b"2", delay=1, key="k", on_key="refuse")
    second.close()


@pytest.mark.parametrize("condition", [{"on_key": "if_pending"}, {"if_seq": 1 << 40}], ids=str)
def test_the_former_owner_does_not_say_that_a_condition_fails(condition: Any, machines: Machines) -> None:
    if machines.kind == "memory":
        pytest.skip("its owners look before they answer only where they write")
    first = machines.broker()
    first.schedule("a", b"1", delay=60, key="k")
    second = machines.broker()
    second.schedule("a", b"2", delay=60, key="other")
    with pytest.raises(OwnershipLostError):
        first.schedule("a", b"3", delay=1, key="other" if "on_key" in condition else "k", **condition)
    second.close()


def test_the_former_owner_does_not_say_what_became_of_what_it_does_not_find(tmp_path: Path) -> None:
    machines = Machines(tmp_path, "objects")
    first = machines.broker()
    sent = first.schedule("a", b"1", delay=1)
    first.advance("2s")
    assert first.reschedule(sent.handle, delay=1).outcome == "delivered"
    second = machines.broker()
    second.schedule("a", b"2", delay=60, key="k")
    with pytest.raises(OwnershipLostError):
        first.cancel_key("a", "k")  # it would be "unknown", and is pending
    with pytest.raises(OwnershipLostError):
        first.reschedule_key("a", "k", delay=1)
    with pytest.raises(OwnershipLostError):
        first.reschedule(sent.handle, delay=1)
    second.close()
    machines.close()


def test_the_former_owner_makes_no_group(machines: Machines) -> None:
    first = machines.broker()
    assert bodies(first, "a") == []
    second = machines.broker()
    with pytest.raises(OwnershipLostError):
        first.receive("a", "new")
    second.close()


def test_an_owner_that_is_cut_off_answers_no_queries(tmp_path: Path) -> None:
    machines = Machines(tmp_path, "objects")
    machines.boot_s = lambda: 100.0
    first = machines.broker()
    first.schedule("a", b"1", delay=60)
    first.schedule("a", b"2", delay=0, id="2")
    first.step()
    handle = first.schedule("a", b"3", delay=60, key="k").handle
    queries: list[Callable[[], object]] = [
        first.pending,
        first.list_pending,
        first.forecast,
        lambda: first.peek("a"),
        lambda: first.history(handle),
        lambda: first.find_key("a", "k"),
        lambda: first.dead_letters("a", "g"),
        lambda: first.call_found(GetHistory(handle), any_topic),
    ]
    assert bodies(first, "a") == [b"2"], "there is a group from now on"
    for query in queries:
        query()
    machines.ways[0].is_cut = True
    for query in queries:
        query()  # what a successor has accepted is not older than a lease
    machines.wait_for_leases()
    for query in queries:
        with pytest.raises(UnavailableError, match="try again"):
            query()
    assert first.status()["log"]["leased"] is False
    assert first.call(GetOverview())["topics"]["count"] == 1
    machines.ways[0].is_cut = False
    first.step()
    for query in queries:
        query()
    # A new owner answers as soon as it is one, though it hands out nothing yet.
    second = machines.broker()
    assert second.status()["log"]["leased"] is False
    assert [each.pending for each in second.pending()] == [2]
    second.close()
    machines.close()


def test_an_owner_that_writes_nothing_finds_out(machines: Machines) -> None:
    first = machines.broker()
    first.step()
    second = machines.broker()
    with pytest.raises(OwnershipLostError):
        first.step()
    second.close()
