"""Small files of JSON with a checksum: read as they were written, refused when they are damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tarry.base.errors import CorruptError
from tarry.log.files import OsFiles
from tarry.log.json_file import read_json, write_json

FIELDS = {"b": [1, None, "é"], "a": {"x": 1}}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    assert read_json(path, [1]) is None
    write_json(OsFiles(), path, 1, FIELDS)
    assert read_json(path, [1, 2]) == FIELDS
    content = json.loads(path.read_text())
    assert list(content) == ["version", "b", "a", "crc"]
    assert path.read_text() == json.dumps(content, indent=1)


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b"\xff", b'{"crc": 1}', b'{"crc": 1, "version": 1}'])
def test_damage_is_refused(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(damage)
    with pytest.raises(CorruptError, match=r"some\.json is damaged"):
        read_json(path, [1])


def test_another_value_and_another_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    write_json(OsFiles(), path, 3, FIELDS)
    with pytest.raises(CorruptError, match=r"reads versions 1 (and|to) 2\b"):
        read_json(path, [1, 2])
    write_json(OsFiles(), path, 1, FIELDS)
    path.write_text(path.read_text().replace('"x": 1', '"x": 2'))
    with pytest.raises(CorruptError):
        read_json(path, [1])
