"""Checks of small files: JSON with a checksum, the id, the key of handles, jobs.db, Spark's files."""

from __future__ import annotations

import shutil
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from tarry.base.errors import CorruptError
from tarry.log.json_file import read_json
from tarry.verify.check import RESTORE, Check, Finding, Pace, Results, bytes_of

_CHECKPOINT = "Progress since the last start is not known: a broker would not know what was delivered."
_POLICIES = "The settings of groups and topics are lost."
_PUSH = "Whom messages are pushed to, and with what secrets, is lost."
_TOKENS = "The access tokens of the HTTP front are lost: whoever shows one is refused."
_IDENTITIES = "A broker does not start without it: it would ask nobody who they are."
_TEST_CLOCK = "Where the test clock stands is not known, and a broker does not start."
_FRONT_STATE = "What classic RocketMQ clients have done in single queues, or how they read, is lost: some comes again."
_ID = "Which broker this is, as its store knows it, is not known."
_ID_ADVICE = f"{RESTORE}; without one, remove it: the next start is refused, and names the id to write into it"
_SECRET = "Handles that were given out cannot be told from forged ones."
_SECRET_ADVICE = f"{RESTORE}; without one, remove it: a new one is made, and handles from before are refused"
_HANDED = "How far hand-outs had come is not known."
_HANDED_ADVICE = (
    "a broker that finds one record whole goes by that and by the clock, and mends the file as it runs; one that finds "
    f"none does not start: {RESTORE}; without one, remove the file: then it goes by the clock alone"
)
_JOBS = "What became of bulk jobs is not known."
_PIPELINE = "The pipeline cannot go on from where it was."

_FOR_NOW = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN)

_HADOOP = struct.Struct(">4si")
_HADOOP_MAGIC = b"crc\0"


def small_checks(
    data: Path,
    versions: Mapping[str, Sequence[int]],
    read_id: Callable[[], object],
    read_secret: Callable[[], object],
    check_bound: Callable[[], object],
    open_jobs: Callable[[Path], object],
    *,
    in_use: bool = False,
) -> Iterator[Check]:
    """Yield the checks of small files.

    Args:
        versions: readable versions of JSON files, by file name.
        read_id, read_secret, check_bound: raise CorruptError if the file is damaged.
        open_jobs: likewise, for the jobs.db in the given directory.
        in_use: True if a broker is writing the files.
    """
    meanings = {
        "checkpoint.json": _CHECKPOINT,
        "policies.json": _POLICIES,
        "push.json": _PUSH,
        "tokens.json": _TOKENS,
        "identities.json": _IDENTITIES,
        "clock.json": _TEST_CLOCK,
    }
    for name, readable in versions.items():
        meaning = meanings.get(name, _CHECKPOINT)
        if name not in meanings and not in_use:
            # The file that the checkpoint names: it has to be there.
            yield Check.of_file(name, data / name, partial(_check_json, data / name, readable, meaning))
            continue
        yield from _if_there(name, data / name, partial(_check_json, data / name, readable, meaning))
    reads = (
        ("broker.id", read_id, _ID, _ID_ADVICE),
        ("secret.key", read_secret, _SECRET, _SECRET_ADVICE),
        ("handed", check_bound, _HANDED, _HANDED_ADVICE),
    )
    for name, read, meaning, advice in reads:
        yield from _if_there(name, data / name, partial(_check_read, data / name, read, meaning, advice))
    jobs = data / "jobs.db"
    # Check even if it is missing now: it may have been there.
    yield Check.of_file("jobs.db", jobs, partial(_check_jobs, jobs, open_jobs, in_use=in_use))


def front_state_checks(paths: Iterable[Path], versions: Sequence[int], bare: Sequence[int]) -> Iterator[Check]:
    """Yield the checks of the fronts' own small files; ``bare``: versions that have no checksum."""
    for path in paths:
        yield from _if_there(path.name, path, partial(_check_json, path, versions, _FRONT_STATE, bare=bare))


def _if_there(kind: str, path: Path, run: partial[Results]) -> Iterator[Check]:
    if path.exists():
        yield Check.of_file(kind, path, run)


def _check_json(path: Path, versions: Sequence[int], meaning: str, pace: Pace, *, bare: Sequence[int] = ()) -> Results:
    pace(bytes_of(path))
    try:
        if read_json(path, versions, bare=bare) is None:
            yield Finding(str(path), None, "missing", meaning, RESTORE)
    except CorruptError as error:
        yield Finding(str(path), None, _without(path, error), meaning, RESTORE)


def _check_read(path: Path, read: Callable[[], object], meaning: str, advice: str, pace: Pace) -> Results:
    """Check a file by ``read``, which raises CorruptError if it is damaged."""
    pace(path.stat().st_size)
    try:
        read()
    except CorruptError as error:
        yield Finding(str(path), None, _without(path, error), meaning, advice)


def _without(path: Path, error: CorruptError) -> str:
    return str(error).removeprefix(str(path)).lstrip(": ").removeprefix("is ")


def _check_jobs(path: Path, open_jobs: Callable[[Path], object], pace: Pace, *, in_use: bool) -> Results:
    pace(bytes_of(path))
    # Opening may change it, so open a copy: SQLite rolls back what a crash left, and a file without a page is removed.
    with tempfile.TemporaryDirectory(prefix="tarry-verify-") as directory:
        copy = Path(directory) / path.name
        try:
            if in_use and path.exists():
                with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(copy)) as target:
                    db.backup(target)
            else:
                for part in path.parent.glob(f"{path.name}*"):
                    shutil.copy(part, directory)
            open_jobs(copy.parent)
        except CorruptError as error:
            yield Finding(str(path), None, _without(copy, error), _JOBS, RESTORE)
        except sqlite3.Error as error:
            if in_use and error.sqlite_errorcode in _FOR_NOW:
                return  # the broker is writing it, or no descriptor is free: the next check finds out
            yield Finding(str(path), None, str(error), _JOBS, RESTORE)


def pipeline_checks(data: Path) -> Iterator[Check]:
    """Yield the checks of Spark's files with a checksum beside them, as Hadoop writes on a local disk."""
    for checksum in sorted((data / "pipeline").rglob(".*.crc")):
        path = checksum.with_name(checksum.name.removeprefix(".").removesuffix(".crc"))
        yield from _if_there("pipeline", path, partial(_check_hadoop, path, checksum))


def _check_hadoop(path: Path, checksum: Path, pace: Pace) -> Results:
    content, sums = path.read_bytes(), checksum.read_bytes()
    pace(len(content))
    if not _matches_hadoop(content, sums):
        advice = "stop the broker and remove the directory pipeline/: the pipeline begins anew from the store"
        yield Finding(str(path), None, f"the checksum in {checksum.name} does not hold", _PIPELINE, advice)


def _matches_hadoop(content: bytes, sums: bytes) -> bool:
    if len(sums) < _HADOOP.size:
        return False
    magic, chunk_bytes = _HADOOP.unpack_from(sums)
    if magic != _HADOOP_MAGIC or not 0 < chunk_bytes <= 1 << 20:
        return False
    chunks = (content[at : at + chunk_bytes] for at in range(0, len(content), chunk_bytes))
    return sums[_HADOOP.size :] == b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
