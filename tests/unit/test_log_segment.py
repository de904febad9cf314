"""A segment file against a model: append, sync, power failure, reopen; and what recovery makes of a tail."""

from __future__ import annotations

import errno
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.faults import FaultyFiles

from tarry.base.errors import CorruptError
from tarry.log import frame
from tarry.log.file_engine import FileLog
from tarry.log.files import AppendFile, Buffer, OsAppendFile, OsFiles
from tarry.log.frame import LogKind
from tarry.log.recover import recover_tail
from tarry.log.segment import SegmentReader, SegmentWriter, list_segments, segment_path

SCHEMA = pa.schema([("n", pa.int64()), ("body", pa.binary())])


def one(n: int, size: int, durable_to: int) -> list[bytes | memoryview]:
    batch = pa.RecordBatch.from_pylist([{"n": n, "body": b"b" * size}], schema=SCHEMA)
    return frame.encode(batch, base=n, durable_to=durable_to)


def numbers(path: Path) -> list[int]:
    with SegmentReader(path) as reader:
        return [batch["n"][0].as_py() for _, _, batch in reader.read_all(SCHEMA)]


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["append", "append", "sync", "power", "kill", "full"]), st.integers(0, 3000)),
    max_size=25,
)


@settings(max_examples=examples(150))
@given(ACTIONS, st.integers(0, 1 << 30))
def test_a_segment_keeps_what_was_synced_and_a_prefix_of_the_rest(actions: list[tuple[str, int]], seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        directory, files = Path(name), FaultyFiles()
        path = segment_path(directory, 5)
        written: list[int] = []
        durable = 0
        writer = SegmentWriter(FileLog(files, directory, LogKind.INTAKE), 5)
        for number, (action, size) in enumerate(actions):
            if action == "append":
                writer.append(one(number, size, writer.durable))
                written.append(number)
            elif action == "full":
                files.full = True
                with pytest.raises(OSError, match="No space"):
                    writer.append(one(number, size, writer.durable))
                files.full = False
            elif action == "sync":
                writer.sync()
                durable = len(written)
            else:
                writer.close()
                if action == "power":
                    files.lose_unsynced(rng)
                known = rng.choice([0, writer.durable])
                kept = recover_tail(FileLog(files, directory, LogKind.INTAKE), 5, durable_to=known)
                writer = SegmentWriter(FileLog(files, directory, LogKind.INTAKE), 5)
                writer.sync()
                found = numbers(path)
                assert found == written[: len(found)]
                assert len(found) == len(kept)
                assert len(found) >= (durable if action == "power" else len(written))
                written, durable = found, len(found)
        assert numbers(path) == written
        writer.close()


def segment(directory: Path, count: int = 5) -> tuple[Path, list[int]]:
    """A segment of which each frame was synced before the next; positions of the frames."""
    writer = SegmentWriter(FileLog(OsFiles(), directory, LogKind.READY), 0)
    for n in range(count):
        writer.append(one(n, 100, writer.durable))
        writer.sync()
    writer.close()
    with SegmentReader(writer.path) as reader:
        return writer.path, [at.position for at in reader.headers()]


@given(st.data())
@settings(max_examples=examples(60))
def test_damage_before_the_last_frame_is_refused_with_its_place(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        path, positions = segment(Path(name))
        content = bytearray(path.read_bytes())
        with SegmentReader(path) as reader:
            padding = {p for at in reader.headers() for p in range(at.position + 64 + at.header.body_bytes, at.end)}
        at = data.draw(st.integers(32, positions[-1] - 1).filter(lambda p: p not in padding))
        content[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        hit = max(p for p in positions if p <= at)
        with pytest.raises(CorruptError, match=f"{path} at offset {hit}:"):
            recover_tail(FileLog(OsFiles(), path.parent, LogKind.READY), 0)
        assert path.read_bytes() == content


def test_what_the_checkpoint_knows_is_never_cut(tmp_path: Path) -> None:
    path, positions = segment(tmp_path)
    size = path.stat().st_size
    content = bytearray(path.read_bytes())
    content[-90] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptError, match=f"at offset {positions[-1]}"):
        recover_tail(FileLog(OsFiles(), path.parent, LogKind.READY), 0, durable_to=size)
    path.write_bytes(content[: positions[-1]])
    with pytest.raises(CorruptError, match=f"at offset {positions[-1]}: the file ends here"):
        recover_tail(FileLog(OsFiles(), path.parent, LogKind.READY), 0, durable_to=size)
    assert len(recover_tail(FileLog(OsFiles(), path.parent, LogKind.READY), 0)) == 4


def test_recovery_from_a_place_looks_only_behind_it(tmp_path: Path) -> None:
    path, positions = segment(tmp_path)
    found = recover_tail(FileLog(OsFiles(), path.parent, LogKind.READY), 0, start=positions[3])
    assert [at.position for at in found] == positions[3:]


def test_names_sort_as_numbers(tmp_path: Path) -> None:
    for base in (5, 100, 0, 99):
        SegmentWriter(FileLog(OsFiles(), tmp_path, LogKind.INTAKE), base).close()
    assert list_segments(tmp_path) == [0, 5, 99, 100]
    assert list_segments(tmp_path / "none") == []


def test_reading_a_damaged_frame_names_file_and_offset(tmp_path: Path) -> None:
    path, positions = segment(tmp_path)
    with SegmentReader(path) as reader, pytest.raises(CorruptError, match=f"{path} at offset {positions[1] + 8}: no"):
        reader.read(positions[1] + 8, SCHEMA)


def test_a_failed_sync_stays_failed(tmp_path: Path) -> None:
    files = FaultyFiles()
    writer = SegmentWriter(FileLog(files, tmp_path, LogKind.INTAKE), 0)
    writer.append(one(0, 10, 0))
    files.broken_sync = True
    with pytest.raises(OSError, match="fsync failed") as failure:
        writer.sync()
    assert failure.value.errno == errno.EIO
    files.broken_sync = False
    with pytest.raises(OSError, match="fsync failed"):
        writer.sync()
    assert writer.durable == 0


class NoRoom(OsFiles):
    """Files can be created, and nothing be written."""

    def open_append(self, path: Path) -> AppendFile:
        class Full(OsAppendFile):
            def write(self, buffers: Sequence[Buffer]) -> None:
                super().write([bytes(buffers[0])[:9]])
                raise OSError(errno.ENOSPC, "No space left on device (injected)")

        return Full(path)


def test_a_segment_that_cannot_be_begun_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        SegmentWriter(FileLog(NoRoom(), tmp_path, LogKind.INTAKE), 0)
    assert list_segments(tmp_path) == []


def test_many_buffers_and_partial_writes(tmp_path: Path) -> None:
    file = OsFiles().open_append(tmp_path / "new" / "x")
    parts = [bytes([i % 251]) * (i % 7) for i in range(2000)]
    file.write(parts)
    assert (tmp_path / "new" / "x").read_bytes() == b"".join(parts)
    assert file.size == sum(map(len, parts))
    file.close()
