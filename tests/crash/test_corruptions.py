"""A table of named damages to a data directory: what opening does with each, and what is still there afterwards.

A torn tail is cut off; damage in what had been durable is refused, with the file and the offset; what is derived is
made again.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from tarry.base.errors import CorruptError
from tarry.log import frame
from tarry.log.frame import LogKind
from tarry.log.segment import Located, SegmentReader, list_segments, segment_path
from tarry.message.schema import SCHEMA
from tests.crash.tools import World, damage
from tests.faults import FaultyFiles, fast_directory


@pytest.fixture(scope="module")
def pristine() -> Iterator[World]:
    """A directory with three intake segments, two ready segments and a journal; a checkpoint, and a message after.

    Beside it is a copy of it, as it was made.
    """
    directory = fast_directory()
    w = World(directory / "data", settings={"horizon_ms": 1_000, "segment_bytes_max": 65_536})
    w.open()
    w.schedule("b", [0, 0, 0, 0, 0], body=15_000)
    w.b.step()
    while len(list_segments(w.directory / "intake")) < 4:
        w.schedule("a", [60_000], body=10_000)
    w.schedule("b", [0, 0], body=200)
    w.schedule("a", [60_001], body=200)
    w.b.step()
    w.ack("b", w.receive("b", 3))
    w.b.step()
    assert w.b.checkpoint()
    w.schedule("z", [61_000], body=3000)  # no later frame and no checkpoint witnesses that it was durable
    w.crashed(None)
    assert len(frames(segment(w, "intake", -1))) == 3
    assert len(list_segments(w.directory / "intake")) == 3  # the first one, all of which has fired, was deleted
    assert len(list_segments(w.directory / "ready")) == 2
    w.files = FaultyFiles()
    shutil.copytree(w.directory, directory / "copy")
    yield w
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def built(pristine: World) -> Iterator[World]:
    """The directory and its ledger as they were made, for one test to damage."""
    shutil.rmtree(pristine.directory)
    shutil.copytree(pristine.directory.with_name("copy"), pristine.directory)
    w = copy.deepcopy(pristine)
    yield w
    if w.broker is not None:
        w.broker.close()


def segment(w: World, log_name: str, which: int) -> Path:
    """The n-th segment of a log."""
    directory = w.directory / log_name
    return segment_path(directory, list_segments(directory)[which])


def frames(path: Path) -> list[Located]:
    with SegmentReader(path) as reader:
        return list(reader.headers())


def extend(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def next_seq(w: World) -> int:
    return frames(segment(w, "intake", -1))[-1].header.base + 1


def new_frame(w: World, durable_to: int | None = None, skip: int = 0) -> bytes:
    """A whole frame that could follow at the end of the intake."""
    path = segment(w, "intake", -1)
    base = next_seq(w) + skip
    row = dict.fromkeys(SCHEMA.names) | {"seq": base, "topic": "a", "due_ms": w.clock.now_ms(), "body": b"x", "kind": 0}
    batch = pa.RecordBatch.from_pylist([row | {"born_ms": 0, "id": "perhaps"}], schema=SCHEMA)
    durable = path.stat().st_size if durable_to is None else durable_to
    return b"".join(bytes(b) for b in frame.encode(batch, base=base, durable_to=durable))


# -- the damages, by name ----------------------------------------------------------------------------------------------


def torn_header(w: World) -> None:
    extend(segment(w, "intake", -1), new_frame(w)[:20])


def torn_body(w: World) -> None:
    extend(segment(w, "intake", -1), new_frame(w)[:-30])


def zero_tail(w: World) -> None:
    extend(segment(w, "intake", -1), bytes(4096))


def garbage_tail(w: World) -> None:
    extend(segment(w, "intake", -1), bytes(range(256)) * 9)


def a_log_file_as_body_in_the_torn_tail(w: World) -> None:
    # Somebody's message holds a log file, whose frames claim that much was durable; it is a part of this tail only.
    inner = new_frame(w, durable_to=1 << 40)
    extend(segment(w, "intake", -1), new_frame(w)[:72] + inner)


def group_commit_persisted_out_of_order(w: World) -> None:
    durable = segment(w, "intake", -1).stat().st_size
    first, second = new_frame(w, durable), new_frame(w, durable, 1)
    extend(segment(w, "intake", -1), first[:100] + bytes(len(first) - 100) + second)


def last_frame_flipped(w: World) -> None:
    damage(segment(w, "intake", -1), -100)


def last_frame_cut(w: World) -> None:
    path = segment(w, "intake", -1)
    path.write_bytes(path.read_bytes()[:-500])


def intake_frame(w: World, at: int = -2) -> tuple[Path, int]:
    """A frame of the last intake segment that the checkpoint knows."""
    path = segment(w, "intake", -1)
    return path, frames(path)[at].position


def middle_body_flipped(w: World) -> None:
    path, position = intake_frame(w)
    damage(path, position + 64 + 200, 1)


def middle_header_flipped(w: World) -> None:
    path, position = intake_frame(w)
    damage(path, position + 17)


def middle_length_flipped(w: World) -> None:
    path, position = intake_frame(w)
    damage(path, position + 10)


def middle_magic_flipped(w: World) -> None:
    path, position = intake_frame(w)
    damage(path, position)


def middle_zeroed(w: World) -> None:
    path, position = intake_frame(w)
    content = bytearray(path.read_bytes())
    content[position : position + 512] = bytes(512)
    path.write_bytes(content)


def known_tail_cut(w: World) -> None:
    path, position = intake_frame(w)
    path.write_bytes(path.read_bytes()[:position])


def file_header_flipped(w: World) -> None:
    damage(segment(w, "intake", -1), 3)


def file_header(w: World, kind: int = LogKind.INTAKE, version: int = 1, base: int | None = None) -> None:
    path = segment(w, "intake", -1)
    content = path.read_bytes()
    head = frame.FILE_HEADER.pack(b"TARRYLOG", version, kind, int(path.stem) if base is None else base, 0, 0)
    head = head[:-4] + frame.zlib.crc32(head[:-4]).to_bytes(4, "little")
    path.write_bytes(head + content[32:])


def of_another_room(w: World) -> None:
    file_header(w, kind=LogKind.READY)


def of_an_unknown_room(w: World) -> None:
    file_header(w, kind=9)


def of_another_version(w: World) -> None:
    file_header(w, version=2)


def of_another_base(w: World) -> None:
    file_header(w, base=77)


def empty_new_segment(w: World) -> None:
    segment_path(w.directory / "intake", next_seq(w)).touch()


def torn_header_of_new_segment(w: World) -> None:
    seq = next_seq(w)
    segment_path(w.directory / "intake", seq).write_bytes(frame.encode_file_header(LogKind.INTAKE, seq)[:9])


def intake_middle_segment_missing(w: World) -> None:
    segment(w, "intake", 1).unlink()


def intake_first_segment_missing(w: World) -> None:
    segment(w, "intake", 0).unlink()


def intake_last_segment_missing(w: World) -> None:
    segment(w, "intake", -1).unlink()


def intake_missing(w: World) -> None:
    shutil.rmtree(w.directory / "intake")


def sealed_intake_damaged(w: World) -> None:
    damage(segment(w, "intake", 0), 3000, 1)
    segment(w, "intake", 0).with_suffix(".idx").unlink()


def sealed_intake_cut(w: World) -> None:
    path = segment(w, "intake", 0)
    path.write_bytes(path.read_bytes()[: frames(path)[-1].position])


def index(w: World) -> Path:
    return segment(w, "intake", 0).with_suffix(".idx")


def index_missing(w: World) -> None:
    index(w).unlink()


def index_cut(w: World) -> None:
    index(w).write_bytes(index(w).read_bytes()[:-5])


def index_empty(w: World) -> None:
    index(w).write_bytes(b"")


def index_garbage(w: World) -> None:
    index(w).write_bytes(b"\xa5" * 300)


def index_flipped(w: World) -> None:
    damage(index(w), 60)


def index_of_another_segment(w: World) -> None:
    shutil.copy(segment(w, "intake", 1).with_suffix(".idx"), index(w))


def table(w: World) -> Path:
    return segment(w, "ready", 0).with_suffix(".idx")


def table_missing(w: World) -> None:
    table(w).unlink()


def table_cut(w: World) -> None:
    table(w).write_bytes(table(w).read_bytes()[:-40])


def table_garbage(w: World) -> None:
    table(w).write_bytes(b"\xa5" * 500)


def table_empty(w: World) -> None:
    table(w).write_bytes(b"")


def table_half_zero(w: World) -> None:
    # Not fsynced: a file system may keep the end of a file and lose its beginning.
    content = table(w).read_bytes()
    body = content.index(b"b" + bytes(4), 500)
    table(w).write_bytes(content[:body] + bytes(200) + content[body + 200 :])


def ready_torn(w: World) -> None:
    extend(segment(w, "ready", -1), bytes(100))


def ready_known_header_flipped(w: World) -> None:
    damage(segment(w, "ready", -1), 32 + 20)


def ready_first_segment_missing(w: World) -> None:
    segment(w, "ready", 0).unlink()


def ready_last_segment_missing(w: World) -> None:
    segment(w, "ready", -1).unlink()


def ready_missing(w: World) -> None:
    shutil.rmtree(w.directory / "ready")


def ready_and_checkpoint_missing(w: World) -> None:
    ready_missing(w)
    checkpoint_missing(w)


def acks_torn(w: World) -> None:
    extend(segment(w, "acks", -1), bytes(100))


def acks_snapshot_cut(w: World) -> None:
    extend(segment_path(w.directory / "acks", 1), frame.encode_file_header(LogKind.ACKS, 1) + b"TFRM")


def acks_middle_flipped(w: World) -> None:
    path = segment(w, "acks", -1)
    extend(path, b"")
    damage(path, frames(path)[0].position + 80)


def acks_missing(w: World) -> None:
    shutil.rmtree(w.directory / "acks")


def acks_file_missing(w: World) -> None:
    segment(w, "acks", -1).unlink()


def acks_known_tail_cut(w: World) -> None:
    path = segment(w, "acks", -1)
    path.write_bytes(path.read_bytes()[:-1])


def acks_known_tail_zeroed(w: World) -> None:
    path = segment(w, "acks", -1)
    path.write_bytes(path.read_bytes()[:-50] + bytes(50))


def acks_known_tail_flipped(w: World) -> None:
    damage(segment(w, "acks", -1), -30)


def acks_empty(w: World) -> None:
    segment(w, "acks", -1).write_bytes(b"")


def checkpoint(w: World) -> Path:
    return w.directory / "checkpoint.json"


def checkpoint_missing(w: World) -> None:
    checkpoint(w).unlink()


def checkpoint_garbage(w: World) -> None:
    checkpoint(w).write_bytes(b"\xff\xfe{")


def checkpoint_empty(w: World) -> None:
    checkpoint(w).write_bytes(b"")


def checkpoint_a_list(w: World) -> None:
    checkpoint(w).write_text("[1, 2]")


def checkpoint_a_number(w: World) -> None:
    checkpoint(w).write_text("7")


def checkpoint_edited(w: World) -> None:
    fields = json.loads(checkpoint(w).read_text())
    checkpoint(w).write_text(json.dumps({**fields, "fired_seq": fields["fired_seq"] + 1}))


def checkpoint_of_another_version(w: World) -> None:
    fields = json.loads(checkpoint(w).read_text())
    del fields["crc"]
    fields["version"] += 1
    fields["crc"] = frame.zlib.crc32(json.dumps(fields, sort_keys=True).encode())
    checkpoint(w).write_text(json.dumps(fields))


def secret_missing(w: World) -> None:
    (w.directory / "secret.key").unlink()


def secret_empty(w: World) -> None:
    (w.directory / "secret.key").write_bytes(b"")


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    damage: Callable[[World], None]
    refused: str = ""
    """What the CorruptError says; with ``{path}`` and ``{offset}`` of the last-but-one frame of the intake."""
    lost: set[str] = field(default_factory=set)
    """Topics of the messages that are gone."""
    again: set[str] = field(default_factory=set)
    """Acknowledged, and delivered again all the same."""
    xfail: str = ""

    def param(self) -> object:
        marks = [pytest.mark.xfail(strict=True, reason=self.xfail)] if self.xfail else []
        return pytest.param(self, id=self.damage.__name__, marks=marks)


CASES = [
    # The tail of the log that is being written: cut off, and nothing else.
    Case(torn_header),
    Case(torn_body),
    Case(zero_tail),
    Case(garbage_tail),
    Case(a_log_file_as_body_in_the_torn_tail),
    Case(group_commit_persisted_out_of_order),
    Case(empty_new_segment),
    Case(torn_header_of_new_segment),
    # Damage to the very last frame looks as a torn write does, unless something knows better.
    Case(last_frame_flipped, lost={"z"}),
    Case(last_frame_cut, lost={"z"}),
    # Damage in what had been durable.
    Case(middle_body_flipped, refused="{path} at offset {offset}"),
    Case(middle_header_flipped, refused="{path} at offset {offset}"),
    Case(middle_length_flipped, refused="{path} at offset {offset}"),
    Case(middle_magic_flipped, refused="{path} at offset {offset}"),
    Case(middle_zeroed, refused="{path} at offset {offset}"),
    Case(known_tail_cut, refused="{path} at offset {offset}"),
    Case(file_header_flipped, refused="{path} at offset 0"),
    Case(of_another_room, refused="{path} at offset 0"),
    Case(of_an_unknown_room, refused="{path} at offset 0: .*kind 9"),
    Case(of_another_version, refused="{path} at offset 0: .*version 2"),
    Case(of_another_base, refused="{path} at offset 0"),
    # Segments.
    Case(intake_first_segment_missing, refused="is missing"),
    Case(intake_middle_segment_missing, refused="one is missing"),
    Case(
        intake_last_segment_missing,
        refused="missing",
    ),
    Case(intake_missing, refused="is missing"),
    Case(sealed_intake_damaged, refused="at offset 32"),
    Case(sealed_intake_cut, refused="one is missing"),
    # What is derived is made again.
    Case(index_missing),
    Case(index_cut),
    Case(index_empty),
    Case(index_garbage),
    Case(index_flipped),
    Case(index_of_another_segment),
    Case(table_missing),
    Case(table_cut),
    Case(table_garbage),
    Case(table_empty),
    Case(table_half_zero),
    # The ready log and the journal.
    Case(ready_torn),
    Case(ready_known_header_flipped, refused="at offset 32"),
    Case(ready_first_segment_missing, refused="is missing: the checkpoint says that only what is before it was"),
    Case(ready_last_segment_missing, refused="is missing"),
    Case(ready_missing, refused="is missing"),
    Case(ready_and_checkpoint_missing, refused="the ready log ends at 0"),
    Case(acks_torn),
    Case(acks_snapshot_cut),
    Case(acks_middle_flipped, refused="at offset 32"),
    Case(acks_missing, refused="00000.log is missing; .* had been durable"),
    Case(acks_file_missing, refused="00000.log is missing; .* had been durable"),
    Case(acks_known_tail_cut, refused="a frame that was durable is damaged"),
    Case(acks_known_tail_zeroed, refused="a frame that was durable is damaged"),
    Case(acks_known_tail_flipped, refused="a frame that was durable is damaged"),
    Case(acks_empty, refused="at offset 0"),
    # The small files.
    Case(checkpoint_missing),
    Case(checkpoint_garbage, refused="checkpoint.json is damaged"),
    Case(checkpoint_empty, refused="checkpoint.json is damaged"),
    Case(checkpoint_a_list, refused="checkpoint.json is damaged"),
    Case(checkpoint_a_number, refused="checkpoint.json is damaged"),
    Case(checkpoint_edited, refused="checkpoint.json is damaged"),
    Case(checkpoint_of_another_version, refused="which a newer Tarry wrote; this one, .*, reads versions 1 to 7"),
    Case(secret_missing),
    Case(secret_empty, refused="secret.key has 0 bytes"),
]


@pytest.mark.parametrize("case", [c.param() for c in CASES])
def test_opening_a_damaged_directory(built: World, case: Case) -> None:
    path, offset = intake_frame(built)
    case.damage(built)
    if case.refused:
        with pytest.raises(CorruptError, match=case.refused.format(path=path, offset=offset)):
            built.open()
        before = {p: p.read_bytes() for p in built.directory.rglob("*.log")}
        with pytest.raises(CorruptError):
            built.open()
        assert {p: p.read_bytes() for p in built.directory.rglob("*.log")} == before, (
            "refused, and changed all the same"
        )
        return
    built.open()
    built.accepted -= {i for i in built.accepted if i[0] in case.lost}
    built.settled -= case.again
    built.perhaps_settled -= case.again
    built.drain()
    assert case.again <= built.settled
    built.reopen()
    assert all(built.receive(t).num_rows == 0 for t in built.topics)
