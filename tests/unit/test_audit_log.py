"""The files of the audit log: rotated, recovered, and checked; what is changed in them is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tarry.api.operations import ReadAuditLog
from tarry.base.errors import CorruptError
from tarry.broker.audit_log import AuditLimits, AuditLog
from tarry.broker.audit_reading import read_lines
from tarry.broker.verification import _audit_bounds
from tarry.log.chain import ChainEnd, frame_of
from tarry.log.file_engine import FileEngine
from tarry.log.files import OsFiles
from tarry.log.frame import LogKind
from tarry.log.segment import SegmentReader, list_segments, segment_path
from tarry.verify import Finding
from tarry.verify.audit import audit_checks

SMALL = AuditLimits(file_bytes=1000, bytes_max=1 << 30, retention_ms=10_000)


def opened(data: Path, limits: AuditLimits = SMALL, now_ms: int = 0) -> tuple[AuditLog, list[CorruptError]]:
    damage: list[CorruptError] = []
    return AuditLog(
        FileEngine(OsFiles(), data).log(LogKind.AUDIT), OsFiles(), data, limits, now_ms, damage.append
    ), damage


def write(log: AuditLog, *instants: int) -> None:
    for at_ms in instants:
        log.append([{"at_ms": at_ms, "operation": "seek", "outcome": "done", "details": {"at": at_ms}}])


def found(data: Path) -> list[str]:
    checks = audit_checks(data / "audit", lambda: _audit_bounds(data))
    results = [result for check in checks for result in check.results(lambda _: None)]
    return [str(result) for result in results if isinstance(result, Finding)]


def numbers(data: Path) -> list[int]:
    return [record.n for record in read_lines(data, ReadAuditLog(limit=10_000))]


def bases(data: Path) -> list[int]:
    return list_segments(data / "audit")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log of 20 lines in several files, closed."""
    log, _ = opened(tmp_path)
    write(log, *range(20))
    log.close(0)
    assert len(bases(tmp_path)) > 3
    return tmp_path


def test_lines_go_on_after_a_start(data: Path) -> None:
    log, damage = opened(data)
    write(log, 20)
    log.close(0)
    assert (numbers(data), damage, found(data)) == (list(range(1, 22)), [], [])


def test_lines_that_were_never_synced_are_read_after_a_kill(data: Path) -> None:
    log, _ = opened(data)
    write(log, 20, 21)  # and nobody closes it
    log, damage = opened(data)
    assert (log.end.number, damage, found(data)) == (23, [], [])


def test_old_files_go_and_the_chain_begins_behind_them(data: Path) -> None:
    log, _ = opened(data)
    write(log, 30_000)
    log.keep(40_000)
    write(log, 40_000)
    log.close(40_000)
    assert bases(data)[0] > 1
    assert found(data) == []
    assert opened(data)[1] == []


def test_no_more_than_so_many_bytes_are_kept(data: Path) -> None:
    log, _ = opened(data, AuditLimits(1000, 3000, 1 << 40))
    log.keep(0)
    assert sum(path.stat().st_size for path in (data / "audit").glob("*.log")) <= 3000
    assert found(data) == []


def test_files_may_be_left_over_from_a_deletion(data: Path) -> None:
    kept = segment_path(data / "audit", 1).read_bytes()
    log, _ = opened(data)
    write(log, 30_000)
    log.close(40_000)
    segment_path(data / "audit", 1).write_bytes(kept)  # as a crash may leave it
    log, damage = opened(data)
    log.close(40_000)
    assert damage == []
    assert bases(data)[0] > 1


def test_a_torn_tail_is_cut_off(data: Path) -> None:
    path = segment_path(data / "audit", bases(data)[-1])
    with path.open("ab") as file:
        file.write(b"TFRM and half a frame")
    assert found(data) == []
    log, damage = opened(data)
    assert (log.end.number, damage) == (21, [])


def flip(data: Path) -> None:
    path = segment_path(data / "audit", bases(data)[1])
    content = bytearray(path.read_bytes())
    content[120] ^= 1
    path.write_bytes(content)


def rewrite(data: Path, number: int, change: Callable[[bytes], bytes | None]) -> None:
    """Change a line as somebody would who knows the format: each frame is whole, and the numbers are right."""
    base = max(each for each in bases(data) if each <= number)
    path = segment_path(data / "audit", base)
    with SegmentReader(path) as reader:
        content = reader.bytes_at(0, 32)
        for at in reader.headers():
            line: bytes | None = reader.bytes_at(at.position + 64, at.header.body_bytes)
            assert line is not None
            if at.header.base == number:
                line = change(line)
            if line is not None:
                content += b"".join(bytes(part) for part in frame_of(line, at.header.base, at.header.due_min_ms, 0))
    path.write_bytes(content)


def cut(data: Path) -> None:
    path = segment_path(data / "audit", bases(data)[-1])
    with SegmentReader(path) as reader:
        last = list(reader.headers())[-1]
    with path.open("ab") as file:
        file.truncate(last.position)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit": (flip, "no valid line begins here"),
    "a line changed": (lambda data: rewrite(data, 6, lambda line: line.replace(b"seek", b"show")), "does not fit line"),
    "the last line of a file changed": (
        lambda data: rewrite(data, bases(data)[1] - 1, lambda line: line.replace(b"seek", b"show")),
        "does not fit line",
    ),
    "the first line changed": (
        lambda data: rewrite(data, 1, lambda line: line.replace(b'"previous":"0', b'"previous":"1')),
        "line 1 does not fit",
    ),
    "the last line changed": (
        lambda data: rewrite(data, 20, lambda line: line.replace(b"seek", b"show")),
        "line 20 is not the one that had been durable",
    ),
    "a line taken out": (lambda data: rewrite(data, 7, lambda _: None), "line 8 comes behind line 6"),
    "the end cut off": (cut, "the log ends before line 20"),
    "the first file gone": (lambda data: segment_path(data / "audit", 1).unlink(), "are missing"),
    "a file gone": (lambda data: segment_path(data / "audit", bases(data)[1]).unlink(), "are missing"),
    "the last file gone": (lambda data: segment_path(data / "audit", bases(data)[-1]).unlink(), "the file is missing"),
    "all files gone": (
        lambda data: [segment_path(data / "audit", each).unlink() for each in bases(data)],
        "the file is missing",
    ),
    "the head damaged": (lambda data: (data / "audit" / "head.json").write_text("{"), "head.json: it is damaged"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_stops_nothing(name: str, data: Path) -> None:
    damage, text = DAMAGES[name]
    damage(data)
    assert any(text in each for each in found(data)), found(data)
    for _ in range(2):  # what is begun behind the damage is sound
        log, _ = opened(data, now_ms=50)
        write(log, 60)
        log.close(60)
    last = max(bases(data))
    places = [each for each in found(data) if str(segment_path(data / "audit", last)) in each]
    assert not places, places
    if name not in ("the head damaged", "all files gone"):
        assert found(data), "the gap remains"
    assert read_lines(data, ReadAuditLog(limit=1))[0].at_ms == 60


@pytest.mark.parametrize("name", ["the end cut off", "the last file gone", "all files gone", "the head damaged"])
def test_a_start_tells_of_damage_at_the_end(name: str, data: Path) -> None:
    DAMAGES[name][0](data)
    log, damage = opened(data, now_ms=50)
    assert len(damage) == 1
    [line] = read_lines(data, ReadAuditLog(operation="audit-log-damaged"))
    assert line.n == 21
    assert line.details["text"] == str(damage[0])
    log.close(50)
    assert opened(data)[1] == []


def test_a_head_that_is_missing_is_made_again(data: Path) -> None:
    (data / "audit" / "head.json").unlink()
    log, damage = opened(data)
    log.close(0)
    assert (damage, found(data), (data / "audit" / "head.json").exists()) == ([], [], True)


def test_reading_filters_and_goes_backwards(data: Path) -> None:
    assert [each.n for each in read_lines(data, ReadAuditLog(since_ms=5, until_ms=9))] == [6, 7, 8, 9]
    assert [each.n for each in read_lines(data, ReadAuditLog(limit=3))] == [18, 19, 20]
    assert [each.n for each in read_lines(data, ReadAuditLog(limit=3, before=18))] == [15, 16, 17]
    assert read_lines(data, ReadAuditLog(who="billing")) == []
    assert read_lines(data, ReadAuditLog(outcome="failed")) == []


def test_a_line_says_its_place() -> None:
    line = ChainEnd(7, "ab").line({"at_ms": 1, "operation": "seek", "outcome": "done"})
    assert json.loads(line) == {"n": 7, "previous": "ab", "at_ms": 1, "operation": "seek", "outcome": "done"}
