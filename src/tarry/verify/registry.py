"""A check of the registry by RocksDB's own checksums, in a copy, so that the original is not changed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tarry.base.errors import CorruptError
from tarry.base.placement import ANY_CORE
from tarry.log.files import OsFiles
from tarry.names.database import Database
from tarry.verify.check import Check, Finding, Pace, Results

_UNUSED = ("LOG", "LOCK", "IDENTITY", "OPTIONS", "rocksdict-config")
"""Files that nothing is read from: they are for people, or are written anew."""
_MEANING = "Names, cancellations and series cannot be looked up: a cancelled message might be delivered."
_ADVICE = "remove the directory registry/: the next start makes it again from store and intake, and says so"


def registry_checks(data: Path, writes_min: int) -> Iterator[Check]:
    """Yield one check of the registry as a whole, if there is one.

    ``writes_min``: the number of batches of changes that had been durable by the checkpoint.
    """
    directory = data / "registry"
    if (directory / "CURRENT").exists():
        size = sum(path.stat().st_size for path in directory.iterdir() if not path.name.startswith(_UNUSED))
        yield Check("registry", str(directory), size, partial(_check, directory, writes_min))


def _check(directory: Path, writes_min: int, pace: Pace) -> Results:
    with tempfile.TemporaryDirectory(prefix="tarry-verify-") as temporary:
        copy = Path(temporary) / "registry"
        copy.mkdir()
        for path in directory.iterdir():
            if path.suffix == ".sst":
                (copy / path.name).symlink_to(path.resolve())  # never written to
            elif path.is_file():
                shutil.copy(path, copy)
        wrong = _wrong_in(copy, writes_min)
    pace(sum(path.stat().st_size for path in directory.iterdir()))
    if wrong:
        yield Finding(str(directory), None, wrong.replace(str(copy), str(directory)), _MEANING, _ADVICE)


def _wrong_in(copy: Path, writes_min: int) -> str | None:
    """Return the fault found when all of it is read; None if it is sound."""
    database = Database(OsFiles(), copy, ANY_CORE)
    try:
        fault = database.open_whole(writes_min)
        if fault is None:
            database.read_all()
        return fault
    except CorruptError as error:
        return str(error).partition(" is damaged: ")[2].rpartition("; ")[0]
    finally:
        database.close()
