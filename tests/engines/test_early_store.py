"""The store of a standby, which is claimed while the logs are still read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable

from tarry.base.config import Config
from tarry.base.errors import CorruptError, OwnershipLostError
from tarry.broker.directory import owner_of
from tarry.broker.early_store import EarlyStore
from tarry.log.engine import ClaimWatch, LogEngine
from tarry.store import Owner, Store, publisher, warm
from tarry.store.claim_entry import put_claim
from tarry.store.fence import EPOCH_KEY, epoch_id
from tests.unit.test_store_table import seqs, staged


class Engine:
    """The part of an engine that has somebody told of its claim."""

    def __init__(self) -> None:
        self.watches: list[ClaimWatch] = []

    @property
    def shared(self) -> Engine:
        return self

    def watch_claim(self, watch: ClaimWatch) -> None:
        self.watches.append(watch)


class Standby:
    """A standby whose directory knows whose the store is, and the former owner."""

    def __init__(self, data: Path, uri: str, takeover: str = "auto") -> None:
        self.uri, self.engine = uri, Engine()
        data.mkdir(exist_ok=True)
        (data / "broker.id").write_text("0" * 32)
        self.owner = owner_of(data)
        self.former = Store.open(uri, owner=Owner(self.owner.id, "there", "/data"), epoch=1)
        self.former.commit(staged(self.former, 0, 10), 0, 10)
        settings: dict[str, Any] = {"log": "s3://bucket/log", "store": uri, "takeover": takeover}
        self.early = EarlyStore(Config(data=data, **settings), cast(LogEngine, self.engine))

    def claimed_by(self) -> int | None:
        return DeltaTable(self.uri).transaction_version(epoch_id(0))


@pytest.fixture
def standby(tmp_path: Path, s3_uri: str) -> Standby:
    return Standby(tmp_path / "data", s3_uri)


def test_it_is_claimed_before_the_broker_opens_it(standby: Standby) -> None:
    [watch] = standby.engine.watches
    watch.suspected()
    watch.claimed(2)
    store = standby.early.store(standby.owner, 2, 0)
    assert store is not None
    assert (store.epoch, standby.claimed_by(), seqs(store)) == (2, 2, list(range(10)))
    with pytest.raises(OwnershipLostError):
        standby.former.commit(staged(standby.former, 10, 20), 10, 20)
    store.commit(staged(store, 10, 20), 10, 20)
    assert seqs(Store.open(standby.uri)) == list(range(20))
    standby.early.close()


def test_what_the_former_owner_commits_after_the_look_is_there(standby: Standby) -> None:
    """The claim is the version after the one that was read, or is made again."""
    [watch] = standby.engine.watches
    watch.suspected()
    standby.early._pool.submit(lambda: None).result()  # type: ignore[union-attr]  # noqa: SLF001 - it has been read
    standby.former.commit(staged(standby.former, 10, 20), 10, 20)
    watch.claimed(2)
    store = standby.early.store(standby.owner, 2, 0)
    assert store is not None
    assert (store.read_snapshot().committed_seq, standby.claimed_by()) == (20, 2)
    standby.early.close()


def test_its_entry_is_that_of_any_other_claim(standby: Standby) -> None:
    """It is put by one request, and read by each program that reads the table."""
    [watch] = standby.engine.watches
    watch.claimed(2)
    assert standby.early.store(standby.owner, 2, 0) is not None
    [early] = DeltaTable(standby.uri).history(1)
    Store.open(standby.uri, owner=standby.owner, epoch=3)
    [other] = DeltaTable(standby.uri).history(1)
    own = {"timestamp", "version", EPOCH_KEY}
    by_delta_rs = {"engineInfo", "clientVersion", *own}
    assert {name: early[name] for name in early.keys() - own} == {n: other[n] for n in other.keys() - by_delta_rs}
    assert (early[EPOCH_KEY], other[EPOCH_KEY]) == ("2", "3")
    standby.early.close()


def test_a_claim_whose_answer_is_lost_is_made_once(standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    [watch] = standby.engine.watches
    before = DeltaTable(standby.uri).version()

    def lost(*args: Any) -> bool:
        assert put_claim(*args)
        return False

    monkeypatch.setattr(publisher, "put_claim", lost)
    watch.claimed(2)
    store = standby.early.store(standby.owner, 2, 0)
    assert store is not None
    assert (DeltaTable(standby.uri).version(), standby.claimed_by()) == (before + 1, 2)
    standby.early.close()


def test_what_was_read_long_ago_is_read_again(standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry behind it may have been cleaned up, and the claim would be put into the gap."""
    monkeypatch.setattr(warm, "FRESH_S", -1.0)
    [watch] = standby.engine.watches
    standby.early._pool.submit(lambda: None).result()  # type: ignore[union-attr]  # noqa: SLF001 - it has been read
    standby.former.commit(staged(standby.former, 10, 20), 10, 20)
    monkeypatch.setattr(publisher, "put_claim", only_behind(int(DeltaTable(standby.uri).version())))
    watch.claimed(2)
    store = standby.early.store(standby.owner, 2, 0)
    assert store is not None
    assert (store.read_snapshot().committed_seq, standby.claimed_by()) == (20, 2)
    standby.early.close()


def only_behind(version: int) -> Callable[..., bool]:
    """Put a claim behind this version alone."""

    def put(root: str, at: int, *args: Any) -> bool:
        assert at == version + 1
        return put_claim(root, at, *args)

    return put


def test_a_later_epoch_has_it(standby: Standby) -> None:
    [watch] = standby.engine.watches
    Store.open(standby.uri, owner=standby.owner, epoch=3)
    watch.claimed(2)
    with pytest.raises(OwnershipLostError, match=r"is epoch 3's, not epoch 2's"):
        standby.early.store(standby.owner, 2, 0)
    standby.early.close()


def test_a_version_that_was_acted_on_has_to_be_there(standby: Standby) -> None:
    [watch] = standby.engine.watches
    watch.claimed(2)
    with pytest.raises(CorruptError, match="but version 99 was acted on"):
        standby.early.store(standby.owner, 2, 99)
    standby.early.close()


def test_where_it_cannot_be_opened_early_it_is_opened_as_any_other(standby: Standby, tmp_path: Path) -> None:
    [watch] = standby.engine.watches
    other = Owner("1" * 32, "here", "/other")
    watch.claimed(2)
    assert standby.early.store(other, 2, 0) is None, "the logs say that it is another broker"
    standby.early.close()
    unknown = Standby(tmp_path / "unknown", f"{standby.uri}-2")
    (tmp_path / "unknown" / "broker.id").unlink()
    unknown.engine.watches[0].claimed(2)
    assert (unknown.early.store(unknown.owner, 2, 0), unknown.claimed_by()) == (None, 1)
    unknown.early.close()
    assert not Standby(tmp_path / "data", f"{standby.uri}-3", takeover="now").engine.watches, "it does not stand by"
    local = Standby(tmp_path / "data", str(tmp_path / "store"))
    assert not local.engine.watches, "a disk needs none of it"
