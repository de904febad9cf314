"""``tarry migrate`` says what a directory is, and changes nothing; what a newer release wrote is refused unchanged."""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tarry.base.errors import CorruptError
from tarry.cli.main import run
from tarry.log.file_engine import DIRECTORIES
from tarry.log.files import OsFiles
from tarry.log.json_file import write_json
from tests.formats.test_formats import VERSIONS, opened, unpacked

NEWER = 99


def content_of(data: Path) -> dict[str, bytes]:
    """All files, but what a broker that is refused may write: who held the directory last, and room on the disk."""
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in sorted(data.rglob("*"))
        if path.is_file() and path.name not in ("lock", "reserve")
    }


def newer_json(path: Path) -> None:
    fields = json.loads(path.read_text())
    del fields["crc"], fields["version"]
    write_json(OsFiles(), path, NEWER, fields)


def newer_jobs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"pragma user_version = {NEWER}")
        db.commit()


def newer_bound(path: Path) -> None:
    record = struct.pack("<4sIQq", b"THND", NEWER, 1 << 40, 0)
    content = bytearray(path.read_bytes())
    content[: len(record) + 4] = record + struct.pack("<I", zlib.crc32(record))
    path.write_bytes(content)


def newer_log(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8:12] = struct.pack("<I", NEWER)
    content[28:32] = struct.pack("<I", zlib.crc32(content[:28]))
    path.write_bytes(content)


PARTS: dict[str, Callable[[Path], None]] = {
    **dict.fromkeys(("checkpoint.json", "policies.json", "tokens.json"), newer_json),
    "jobs.db": newer_jobs,
    "handed": newer_bound,
    **{f"{name}/*.log": newer_log for name in DIRECTORIES.values() if name != "audit"},
}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_directory_needs_nothing(tmp_path: Path, version: int, capsys: pytest.CaptureFixture[str]) -> None:
    data = unpacked(tmp_path, version)
    before = content_of(data)
    assert run(["migrate", str(data)]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    more = "" if version == VERSIONS[-1] else f"; written anew as version {VERSIONS[-1]}"
    assert first == f"checkpoint.json: version {version}, read{more}"
    assert last.startswith("Nothing is to do: ")
    assert run(["migrate", "--dry-run", "--json", str(data)]) == 0
    *formats, summary = map(json.loads, capsys.readouterr().out.splitlines())
    older = [each["part"] for each in formats if each["found"] < each["writes"]]
    assert {key: summary[key] for key in ("to_do", "newer", "damaged")} == {"to_do": [], "newer": [], "damaged": []}
    assert summary["older"] == older
    assert content_of(data) == before


@pytest.mark.parametrize("part", PARTS)
def test_what_a_newer_release_wrote_is_refused_unchanged(
    tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = unpacked(tmp_path, VERSIONS[-1])
    with opened(data):
        pass  # its store is told where the directory is now
    PARTS[part](sorted(data.glob(part))[-1])
    before = content_of(data)
    said = rf"{data}/{part.split('/')[0]}.* is of format version {NEWER}, which a newer Tarry wrote; .* Install the"
    with pytest.raises(CorruptError, match=said):
        opened(data)
    assert content_of(data) == before
    assert run(["migrate", str(data)]) == 4
    shown = capsys.readouterr()
    assert f"version {NEWER}, newer; this release reads" in shown.out
    assert f"is of format version {NEWER}, which a newer Tarry wrote" in shown.err
    assert content_of(data) == before


def test_a_directory_that_cannot_be_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = unpacked(tmp_path, VERSIONS[-1])
    with opened(data):
        assert run(["migrate", str(data)]) == 3
        assert "is in use by a broker" in capsys.readouterr().err
    assert run(["migrate", str(tmp_path)]) == 1
    assert "no data directory" in capsys.readouterr().err
    (data / "backup.json").write_text("{}")
    assert run(["migrate", str(data)]) == 3
    assert "is a backup" in capsys.readouterr().err
    (data / "backup.json").rename(data / "cache-of")
    assert run(["migrate", str(data)]) == 3
    assert "is a cache" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["policies.json", "jobs.db", "handed"])
def test_what_is_damaged_is_told(tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = unpacked(tmp_path, VERSIONS[-1])
    (data / part).write_bytes(b"[1]" * 5000)
    assert run(["migrate", str(data)]) == 4
    shown = capsys.readouterr()
    assert f"{part}: damaged; this release reads" in shown.out
    assert f"{data / part} is damaged; allowed: what tarry verify" in shown.err
