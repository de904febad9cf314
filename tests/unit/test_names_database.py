"""The embedded database by itself, on damaged files."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from tarry.base.placement import AnyCore
from tarry.errors import CorruptError
from tarry.log.files import OsFiles
from tarry.names import database
from tarry.names.database import Database, new_batch

BATCHES_MAX = 2_000
VALUE = random.Random(1).randbytes(1_000)  # nothing that compresses


def _open(directory: Path) -> Database:
    return Database(OsFiles(), directory, AnyCore())


def _write(db: Database) -> None:
    changes = new_batch()
    for n in range(100):
        changes.put(b"key-%03d" % n, VALUE)
    db.write(changes)


def test_damage_that_its_own_threads_met_does_not_stop_it_from_being_closed_and_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "BUFFER_BYTES", 1 << 16)  # so that it soon merges files, which reads them all
    directory = tmp_path / "registry"
    db = _open(directory)
    db.begin(0)
    _write(db)
    db.complete()
    db.close()
    largest = max(directory.glob("*.sst"), key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1  # in a value
    largest.write_bytes(content)

    db = _open(directory)
    assert db.open_whole(0) is None  # the damage is in a block that nothing has read yet
    with pytest.raises(CorruptError):
        for _ in range(BATCHES_MAX):
            _write(db)
    with caplog.at_level(logging.WARNING):
        db.discard()
    assert "was closed with an error: Corruption" in caplog.text
    assert not directory.exists()
