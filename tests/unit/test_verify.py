"""``tarry verify``: a sound directory is sound, and one flipped byte is found in every kind of file."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.cli_tools import Captured, data_of, error_of, out_of

import tarry.store.publisher as store_publisher
from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.base.errors import CorruptError, LockedError
from tarry.broker import Broker
from tarry.broker.verification import held
from tarry.log.files import OsFiles
from tarry.log.json_file import write_json
from tarry.store.claims import FileContent
from tarry.store.parquet import groups
from tarry.store.place import Place
from tarry.verify.store import check_file

T0 = 1_795_264_000_000
HOUR = 3_600_000


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with every kind of file, of a broker that stopped, and after its next start was killed."""
    directory = tmp_path_factory.mktemp("sound")
    data = directory / "data"
    clock = TestClock(T0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_publisher, "CHECKPOINT_COMMITS", 3)
        config = Config(data=data, pipeline="off", disk_free_bytes_min=0, segment_bytes_max=4096)
        with Broker.open(config, clock=clock, threads=False) as broker:
            broker.set_group("a", "g", tries=3)
            broker.set_push("s", topic="c", url="https://example.com/")
            broker.create_token("a")
            for i in range(60):
                broker.schedule("a", b"x" * 500, delay=1 + i, key=f"k{i}")
                broker.schedule("a", b"y" * 100, delay=3600 + i, key=f"l{i}")
            for number in range(5):
                _load(broker, f"job {number}")
            for _ in range(6):
                clock.advance_ms(10_000)
                broker.step()
            batch = broker.receive("a", "g", max_messages=30)
            broker.ack("a", "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())
            broker.step()
        with Broker.open(config, clock=clock, threads=False) as broker:
            # What is in the registry's own log only goes into a file of it when the broker stops.
            for i in range(20):
                broker.schedule("a", b"v", delay=3600, key=f"m{i}")
            broker.checkpoint()
            killed = shutil.copytree(data, directory / "killed")
    _spark_checkpoint(killed / "pipeline" / "schedule" / "offsets")
    return killed


def _load(broker: Broker, job: str) -> None:
    bulk = broker.components.bulk
    number = bulk.begin(job).number
    rows = {"topic": ["b"] * 99, "due_ms": pa.array([T0 + HOUR + i for i in range(99)]), "body": [b"z" * 99] * 99}
    bulk.commit(number, *bulk.stage(number, [pa.record_batch(rows)]))


def _spark_checkpoint(directory: Path) -> None:
    """A file with a checksum beside it, as Hadoop's file system on a local disk writes them."""
    directory.mkdir(parents=True)
    content = b'v1\n{"batch": 7}\n' * 100
    sums = b"".join(zlib.crc32(content[at : at + 512]).to_bytes(4, "big") for at in range(0, len(content), 512))
    (directory / "7").write_bytes(content)
    (directory / ".7.crc").write_bytes(b"crc\0" + (512).to_bytes(4, "big") + sums)


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "data")


KINDS = {
    "intake log": "intake/*0.log",
    "last intake log": "intake/*.log",
    "intake index": "intake/*0.idx",
    "ready log": "ready/*.log",
    "last ready log": "ready/*.log",
    "ready index": "ready/*.idx",
    "acks log": "acks/*.log",
    "jobs.db": "jobs.db",
    "broker.id": "broker.id",
    "secret.key": "secret.key",
    "checkpoint.json": "checkpoint.json",
    "policies.json": "policies.json",
    "push.json": "push.json",
    "tokens.json": "tokens.json",
    "handed": "handed",
    "store log": "store/_delta_log/*.json",
    "oldest store log": "store/_delta_log/*0.json",
    "store checkpoint": "store/_delta_log/*.checkpoint.parquet",
    "store hint": "store/_delta_log/_last_checkpoint",
    "store record": "store/_delta_log/*.json.crc32",
    "store file": "store/shard=0/*/*.parquet",
    "registry": "registry/*.sst",
    "registry's own log": "registry/*.log",
    "registry's list": "registry/MANIFEST-*",
    "registry's pointer": "registry/CURRENT",
    "pipeline": "pipeline/schedule/offsets/7",
    "pipeline's checksum": "pipeline/schedule/offsets/.7.crc",
}


def test_a_sound_directory_has_every_kind_and_is_sound(sound: Path, capsys: Captured) -> None:
    for kind, pattern in KINDS.items():
        assert list(sound.glob(pattern)), kind
    before = {path: path.read_bytes() for path in sound.rglob("*") if path.is_file()}
    assert "nothing damaged" in out_of(capsys, "verify", str(sound))
    [summary] = data_of(capsys, "verify", str(sound))
    assert (summary["what"], summary["damaged"]) == ("summary", 0)
    assert summary["kinds"]["store file"] == 5
    assert {path: path.read_bytes() for path in sound.rglob("*") if path.is_file()} == before, "nothing is changed"


def flips() -> Iterator[Any]:
    """Kinds of files, and at which part of their length a byte is flipped: one place of each in the core."""
    for kind in KINDS:
        yield kind, 0.3
        if kind == "jobs.db":
            continue
        # Behind the middle of its files, RocksDB keeps what it can do without.
        for at in (0.0, 0.5) if kind == "registry" else (0.0, 0.5, 0.77, 1.0):
            yield pytest.param(kind, at, marks=pytest.mark.rest)


@pytest.mark.parametrize(("kind", "at"), list(flips()))
def test_one_flipped_byte_is_found(data: Path, kind: str, at: float, capsys: Captured) -> None:
    path = sorted(data.glob(KINDS[kind]))[-1 if kind.startswith("last") else 0]
    content = bytearray(path.read_bytes())
    marks = {"jobs.db": b"committed"}  # SQLite has padding, which nobody reads
    place = content.rindex(marks[kind]) + 2 if kind in marks else int(at * (len(content) - 1))
    content[place] ^= 0x15
    path.write_bytes(content)
    *entries, summary = data_of(capsys, "verify", str(data), code=4)
    damaged = [entry for entry in entries if entry["what"] == "damage"]
    assert summary["damaged"] == len(damaged)
    places = {str(path), str(path.parent), str(path.with_name(path.name.removeprefix(".").removesuffix(".crc")))}
    assert {entry["path"] for entry in damaged} & places
    assert all(entry["reason"] and entry["meaning"] and entry["advice"] for entry in damaged)


@pytest.mark.parametrize("kind", ["ready log", "last intake log", "store file", "store log"])
@pytest.mark.parametrize("how", ["cut", "zeroed", "missing"])
def test_other_damage_is_found_and_told_with_its_place(data: Path, kind: str, how: str, capsys: Captured) -> None:
    path = sorted(data.glob(KINDS[kind]))[1]  # without the first, it would be as if that had been deleted in time
    content = path.read_bytes()
    half = len(content) // 2
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:half] + (b"" if how == "cut" else bytes(len(content) - half)))
    text = out_of(capsys, "verify", str(data), code=4)
    assert f"damage: {path.parent}" in text
    assert "To go on: " in text
    if how == "zeroed" and kind in ("ready log", "last intake log"):
        assert f"{path} at offset " in text


def test_a_torn_tail_is_no_damage(data: Path, capsys: Captured) -> None:
    last = max((data / "intake").glob("*.log"))
    with last.open("ab") as file:
        file.write(b"TFRM" + bytes(100))
    assert "note: " in (text := out_of(capsys, "verify", str(data)))
    assert "a torn tail of 104 bytes" in text
    entry = max((data / "store" / "_delta_log").glob("*.json"))
    following = entry.with_name(f"{int(entry.stem) + 1:020d}.json")
    following.write_bytes(entry.read_bytes()[:200])
    assert "a commit that a crash cut off" in out_of(capsys, "verify", str(data))


def test_what_a_crash_left_of_deletions_is_no_damage_and_a_first_segment_that_is_missing_is(
    data: Path, capsys: Captured
) -> None:
    checkpoint = json.loads((data / "checkpoint.json").read_text())
    del checkpoint["crc"]
    first, second, third, *_ = sorted((data / "intake").glob("*.log"))
    assert checkpoint["intake_first"] == int(first.stem)
    second.rename(data / "second")
    checkpoint["intake_first"] = int(third.stem)
    write_json(OsFiles(), data / "checkpoint.json", checkpoint.pop("version"), checkpoint)
    text = out_of(capsys, "verify", str(data))
    assert f"note: {first}: nobody needs it any more" in text
    first.unlink()
    out_of(capsys, "verify", str(data))
    third.unlink()
    text = out_of(capsys, "verify", str(data), code=4)
    assert f"damage: {third}: the file is missing; by the checkpoint, only what is before it was deleted" in text


def test_a_directory_in_use_is_refused_and_left_alone(data: Path, capsys: Captured) -> None:
    with Broker.open(Config(data=data, pipeline="off"), clock=TestClock(T0), threads=False):
        code, text = error_of(capsys, "verify", str(data))
    assert (code, "in use by a broker" in text) == (3, True)
    code, text = error_of(capsys, "verify", str(data / "intake"))
    assert (code, "is no data directory" in text) == (1, True)
    assert not (data / "intake" / "lock").exists()


def test_an_intake_that_is_gone_is_told_also_where_its_last_file_was_empty(data: Path, capsys: Captured) -> None:
    checkpoint = json.loads((data / "checkpoint.json").read_text())
    del checkpoint["crc"]
    checkpoint["intake"][1] = 0
    write_json(OsFiles(), data / "checkpoint.json", checkpoint.pop("version"), checkpoint)
    shutil.rmtree(data / "intake")
    text = out_of(capsys, "verify", str(data), code=4)
    assert "by the checkpoint, only what is before it was deleted" in text
    assert "0 bytes of it had been durable" in text
    with pytest.raises(CorruptError, match="is missing"):
        Broker.open(Config(data=data, pipeline="off"), clock=TestClock(T0), threads=False)


def test_a_missing_id_and_another_brokers_store_are_told(data: Path, tmp_path: Path, capsys: Captured) -> None:
    """A broker would refuse to start on either."""
    own = (data / "broker.id").read_text().strip()
    (data / "broker.id").unlink()
    text = out_of(capsys, "verify", str(data), code=4)
    assert f"damage: {data / 'broker.id'}: missing; the store at {data / 'store'} is of broker {own}" in text
    (data / "broker.id").write_text(f"{'0' * 32}\n")
    text = out_of(capsys, "verify", str(data), code=4)
    assert f"damage: {data / 'store'}: the store of another broker, {own}" in text
    assert out_of(capsys, "verify", "--store", str(tmp_path / "none"), str(data), code=4).count("store of another") == 0


def test_a_broker_does_not_start_while_a_directory_is_checked(data: Path) -> None:
    with held(data), held(data), pytest.raises(LockedError):
        Broker.open(Config(data=data, pipeline="off"), threads=False)


@pytest.mark.parametrize("name", ["older", "foreign"])
def test_a_file_without_a_checksum_of_its_data_is_decoded(data: Path, name: str) -> None:
    store = data / "store"
    path = min(store.glob("shard=0/*/*.parquet"))
    *_, unique, _, of_footer = path.stem.split("-")
    renamed = path.rename(path.with_name(f"run-{unique}-{of_footer}.parquet" if name == "older" else "part-0.parquet"))

    def findings(rows: int = 99) -> list[Any]:
        claimed = FileContent(rows, 0, 0, 0, 0, "b", "b") if name == "foreign" else content._replace(rows=rows)
        size = renamed.stat().st_size
        return list(check_file(place, str(renamed.relative_to(store)), size, claimed, lambda _: None))

    place = Place.of(str(store))
    content = FileContent.of(groups(place, str(renamed.relative_to(store))))
    assert findings() == []
    if name == "older":
        [finding] = findings(rows=98)
        assert "rows 98, but its footer says 99" in str(finding)
    whole = bytearray(renamed.read_bytes())
    whole[len(whole) // 4] ^= 0x15
    renamed.write_bytes(whole)
    [finding] = findings()
    assert (finding.path, finding.offset) == (str(renamed), 4), "the first row group begins behind the magic number"


def test_an_empty_store_that_is_gone_is_no_damage_as_a_start_makes_a_new_one(tmp_path: Path, capsys: Captured) -> None:
    data, config = tmp_path / "data", Config(data=tmp_path / "data", pipeline="off", disk_free_bytes_min=0)
    with Broker.open(config, clock=TestClock(T0), threads=False) as broker:
        broker.schedule("a", b"x")
        broker.step()
    shutil.rmtree(data / "store")
    assert f"note: {data / 'store'}: the store is missing; it was empty" in out_of(capsys, "verify", str(data))
    with Broker.open(config, clock=TestClock(T0), threads=False):
        pass
    assert "nothing damaged" in out_of(capsys, "verify", str(data))


def test_a_store_with_messages_that_is_gone_is_damage_as_a_start_is_refused(data: Path, capsys: Captured) -> None:
    shutil.rmtree(data / "store")
    assert f"damage: {data / 'store'}: the store is missing" in out_of(capsys, "verify", str(data), code=4)
    with pytest.raises(CorruptError, match="there is no store at"):
        Broker.open(Config(data=data, pipeline="off", disk_free_bytes_min=0), threads=False)


def test_of_a_cache_its_files_are_checked_and_the_store_where_it_is_named(data: Path, capsys: Captured) -> None:
    store = shutil.move(data / "store", data.with_name("elsewhere"))
    (data / "cache-of").write_text("s3://bucket/log/shard=0\n")
    text = out_of(capsys, "verify", str(data))
    assert f"note: {data}: it is a cache of the logs in s3://bucket/log/shard=0" in text
    assert ("not its store" in text, "store file" in text, "nothing damaged" in text) == (True, False, True)
    text = out_of(capsys, "verify", "--store", str(store), str(data))
    assert ("not its store" in text, "store file" in text) == (False, True)
    (data / "checkpoint.json").write_bytes(b"{}")
    note, *_, damage, _ = data_of(capsys, "verify", str(data), code=4)
    assert (note["what"], note["kind"]) == ("note", "cache")
    assert (damage["what"], damage["meaning"]) == ("damage", "It is a file of a cache, so nothing is lost.")
