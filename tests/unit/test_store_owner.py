"""A shard of a store is one broker's: whatever filled it, and wherever that broker's directory goes."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import tarry.broker.directory
from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.base.errors import CorruptError, InvalidArgumentError, LockedError, TarryError
from tarry.broker import Broker
from tarry.store import Owner, Store
from tarry_relay.positions import At
from tarry_relay.table import RelayStore

T0 = 1_795_264_000_000


def opened(data: Path, store: Path, shard: int = 0) -> Broker:
    config = Config(data=data, store=str(store), shard=shard, pipeline="off", disk_free_bytes_min=0)
    return Broker.open(config, clock=TestClock(T0), threads=False)


def load(broker: Broker) -> None:
    bulk = broker.components.bulk
    attempt = bulk.begin("job")
    rows = pa.record_batch({"topic": ["a"], "due_ms": pa.array([T0 + 3_600_000]), "body": [b"x"]})
    bulk.commit(attempt.number, *bulk.stage(attempt.number, [rows]))


def kill(broker: Broker) -> None:
    """As SIGKILL: nothing more is written, and the lock is gone."""
    parts = broker.components
    for thing in (parts.journal, parts.ready, parts.intake, parts.registry):
        thing.close()
    parts.engine.release()


def files_of(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@pytest.mark.parametrize("is_filled", [False, True])
def test_a_second_broker_is_refused_by_the_name_of_the_first(tmp_path: Path, is_filled: bool) -> None:
    first = opened(tmp_path / "first", tmp_path / "store")
    if is_filled:
        load(first)
    before = files_of(tmp_path / "store")
    for running in (True, False):
        with pytest.raises(LockedError, match=f"with the data directory {tmp_path / 'first'} ") as refused:
            opened(tmp_path / "second", tmp_path / "store")
        assert refused.value.code == "locked"
        if running:
            first.close()
            before = files_of(tmp_path / "store")
    assert files_of(tmp_path / "store") == before
    assert files_of(tmp_path / "second") == ["lock"]
    opened(tmp_path / "second", tmp_path / "store", shard=1).close()  # of the same table, another part
    opened(tmp_path / "first", tmp_path / "store").close()


def test_a_broker_comes_back_after_a_kill_and_from_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = opened(tmp_path / "here", tmp_path / "store")
    load(broker)
    kill(broker)
    broker = opened(tmp_path / "here", tmp_path / "store")
    kill(broker)
    shutil.move(tmp_path / "here", tmp_path / "there")
    monkeypatch.setattr(tarry.broker.directory.socket, "gethostname", lambda: "elsewhere")
    broker = opened(tmp_path / "there", tmp_path / "store")
    version = broker.components.store.snapshot().version
    broker.close()
    with pytest.raises(LockedError, match=rf"ran on elsewhere with the data directory {tmp_path / 'there'} "):
        opened(tmp_path / "other", tmp_path / "store")
    broker = opened(tmp_path / "there", tmp_path / "store")
    assert broker.components.store.snapshot().version == version  # nothing is written where nothing is new
    broker.close()


def test_a_store_of_before_there_were_owners_is_the_first_ones(tmp_path: Path) -> None:
    Store.open(str(tmp_path / "store"))
    opened(tmp_path / "first", tmp_path / "store").close()
    with pytest.raises(LockedError):
        opened(tmp_path / "second", tmp_path / "store")


def test_of_brokers_that_claim_at_once_one_gets_the_store(tmp_path: Path) -> None:
    uri = Store.open(str(tmp_path / "store")).root
    start, outcomes = threading.Barrier(4), list[str]()

    def claim(name: str) -> None:
        start.wait()
        try:
            Store.open(uri, owner=Owner(name * 32, "host", name))
            outcomes.append(name)
        except TarryError as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=claim, args=(str(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes)[1:] == ["locked"] * 3


def test_a_lost_id_is_written_down_again_by_hand(tmp_path: Path) -> None:
    opened(tmp_path / "data", tmp_path / "store").close()
    id_file = tmp_path / "data" / "broker.id"
    text = id_file.read_text()
    id_file.write_text("nonsense")
    with pytest.raises(CorruptError, match=r"broker\.id is damaged: 'nonsense'"):
        opened(tmp_path / "data", tmp_path / "store")
    id_file.unlink()
    with pytest.raises(LockedError, match=f"its id is {text.strip()}"):
        opened(tmp_path / "data", tmp_path / "store")
    id_file.write_text(text)
    opened(tmp_path / "data", tmp_path / "store").close()


def test_brokers_and_relays_have_shards_of_their_own(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    opened(tmp_path / "data", tmp_path / "store").close()
    with pytest.raises(InvalidArgumentError, match=r"shard 0 of the store at .* is a broker's"):
        RelayStore.open_relay(uri)
    relay = RelayStore.open_relay(uri, shard=1)
    relay.commit_records([], {("t", 0): (None, At(0, 5))}, 1)
    with pytest.raises(LockedError, match=r"shard 1 of the store at .* is a relay's"):
        opened(tmp_path / "other", tmp_path / "store", shard=1)


@pytest.mark.parametrize(("place", "text"), [("id", "q"), ("host", '\\"'), ("data", "\\")])
def test_an_owner_that_a_damaged_log_names_is_none(tmp_path: Path, place: str, text: str) -> None:
    opened(tmp_path / "data", tmp_path / "store").close()
    [log] = (tmp_path / "store" / "_delta_log").glob("*0.json")
    before = log.read_text()
    # Behind the key, the value and its quotes, which are escaped in a text within a text.
    at = before.index(f'\\"{place}\\"') + len(f'\\"{place}\\": \\"')
    log.write_text(before[:at] + text + before[at + 1 :])
    with pytest.raises(CorruptError, match=r"damaged"):
        opened(tmp_path / "data", tmp_path / "store")
    log.write_text(before)
    opened(tmp_path / "data", tmp_path / "store").close()
