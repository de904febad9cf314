"""The registry: RocksDB's own checksums, in a copy that it may open without changing the original."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rocksdict import DBRecoveryMode, Options, Rdict, ReadOptions

from tarry.verify.check import Check, Finding, Pace, Results

_UNUSED = ("LOG", "LOCK", "IDENTITY", "OPTIONS", "rocksdict-config")
"""Files that nothing is read from: they are for people, or written anew."""
_MEANING = "Names, cancellations and series cannot be looked up: a cancelled message might be delivered."
_ADVICE = "remove the directory registry/: the next start makes it again from store and intake, and says so"


def registry_checks(data: Path) -> Iterator[Check]:
    """One check of the registry as a whole, if there is one."""
    directory = data / "registry"
    if (directory / "CURRENT").exists():
        size = sum(path.stat().st_size for path in directory.iterdir() if not path.name.startswith(_UNUSED))
        yield Check("registry", str(directory), size, partial(_check, directory))


def _check(directory: Path, pace: Pace) -> Results:
    with tempfile.TemporaryDirectory(prefix="tarry-verify-") as temporary:
        copy = Path(temporary) / "registry"
        copy.mkdir()
        for path in directory.iterdir():
            if path.suffix == ".sst":
                (copy / path.name).symlink_to(path.resolve())  # never written to
            elif path.is_file():
                shutil.copy(path, copy)
        wrong = _wrong_in(copy)
    pace(sum(path.stat().st_size for path in directory.iterdir()))
    if wrong:
        yield Finding(str(directory), None, wrong.replace(str(copy), str(directory)), _MEANING, _ADVICE)


def _wrong_in(copy: Path) -> str | None:
    """What RocksDB says when all of it is read; None where it is sound."""
    options = Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_paranoid_checks(True)
    options.set_wal_recovery_mode(DBRecoveryMode.absolute_consistency())
    reading = ReadOptions()
    reading.set_verify_checksums(True)
    try:
        db = Rdict(str(copy), options)
        try:
            rows = db.iter(reading)
            rows.seek_to_first()
            while rows.valid():
                rows.next()
            rows.status()  # it ends at damage as it does at the end
        finally:
            db.close()
    except Exception as error:  # noqa: BLE001  RocksDB's bindings raise nothing more specific
        return str(error).partition("\n")[0]
    return None
