"""Checks of the store: of its Delta log by the records of it, of its files by checksums and the log."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tarry.base.arrow_memory import when_memory
from tarry.base.errors import CorruptError
from tarry.store.claims import FileContent, differences
from tarry.store.footers import FOOTERS, checksums_in, footer_bytes_at
from tarry.store.locallog import (
    GO_ON,
    LAST_CHECKPOINT,
    RECORD_SUFFIX,
    checkpoints_in,
    entries_in,
    entry_path,
    is_as_recorded,
    is_complete,
    is_readable_checkpoint,
    log_directory,
    record_path,
    version_of_file,
)
from tarry.store.owner import owners_in
from tarry.store.parquet import check_group, groups
from tarry.store.place import Place
from tarry.store.snapshot import FileColumns
from tarry.store.unreached import unreached
from tarry.verify.check import CHUNK_BYTES, DERIVED, RESTORE, Check, Finding, Note, Pace, Results

_LOG = "Which files the store has, or what they are, is not known for certain."
_OWNER = "A broker does not start on this directory with this store."
_OWNER_ADVICE = (
    "name this directory's own store (--store); where that is right: docs/operations.md, 'Another broker's store'"
)
_NO_ID_ADVICE = f"{RESTORE}; without one, write that id into it, if no other directory is that broker's"
_FILE = "Messages of that file cannot be read: they would not be delivered when they are due."


def store_checks(uri: str, version_min: int = -1) -> Iterator[Check]:
    """Yield the checks of a store: of its log, if on a local disk, and of all files of its newest version.

    ``version_min``: the newest version that somebody has acted on.
    """
    place = Place.of(uri)
    if place.local is not None:
        if not place.local.is_dir():
            if version_min >= 0:
                yield Check("store log", uri, 0, lambda _: _lost(uri, version_min))
            return
        yield from local_log_checks(place.local, version_min)
    yield from file_checks(place, version_min)


def owner_checks(uri: str, id_file: Path, read_id: Callable[[], str | None]) -> Iterator[Check]:
    """Yield the check that the store is of the broker whose data directory this is.

    Args:
        id_file: the directory's file with the broker's id.
        read_id: returns the id, or None if there is no file; raises CorruptError if it is damaged.
    """
    place = Place.of(uri)
    if place.local is None or place.local.is_dir():
        yield Check("store owner", uri, 0, lambda _: _other_owner(place, id_file, read_id))


def _other_owner(place: Place, id_file: Path, read_id: Callable[[], str | None]) -> Results:
    try:
        owners = owners_in(place)
    except CorruptError as error:
        yield Finding(place.uri, None, str(error), _OWNER, _OWNER_ADVICE)
        return
    try:
        own = read_id()
    except CorruptError:
        return  # the file's own check tells
    if not owners or own in {owner.id for owner in owners}:
        return
    other = "; ".join(f"{owner.id}, which ran on {owner.host} with the data directory {owner.data}" for owner in owners)
    if own is None:
        yield Finding(
            str(id_file), None, f"missing; the store at {place.uri} is of broker {other}", _OWNER, _NO_ID_ADVICE
        )
    else:
        what = f"the store of another broker, {other}; the id in {id_file} is {own}"
        yield Finding(place.uri, None, what, _OWNER, _OWNER_ADVICE)


def _lost(uri: str, version_min: int) -> Results:
    if version_min == 0:
        yield Note(uri, "the store is missing; it was empty, and a broker makes a new one when it starts")
        return
    yield Finding(uri, None, f"the store is missing; it was at version {version_min}", _FILE, RESTORE)


# -- its log -----------------------------------------------------------------------------------------------------------


def local_log_checks(root: Path, version_min: int) -> Iterator[Check]:
    """Yield the checks of the Delta log on a local disk."""
    yield Check("store log", str(log_directory(root)), 0, lambda _: _missing_entries(root, version_min))
    yield from local_entry_checks(root, torn=_torn(root, version_min))


def local_entry_checks(root: Path, *, torn: Path | None = None) -> Iterator[Check]:
    """Yield the checks of each file of a Delta log; files may be cleaned up meanwhile.

    ``torn``: the entry that a crash cut off.
    """
    directory = log_directory(root)
    for entry in entries_in(root):
        yield Check.of_file("store log", entry, partial(_check_entry, entry, may_be_torn=entry == torn))
    for checkpoint in checkpoints_in(root):
        yield Check.of_file("store checkpoint", checkpoint, partial(_check_checkpoint, checkpoint))
    for record in sorted(directory.glob(f"*{RECORD_SUFFIX}")):
        yield Check.of_file("store record", record, partial(_check_record, record))
    if (hint := directory / LAST_CHECKPOINT).exists():
        yield Check.of_file("store checkpoint", hint, partial(_check_hint, hint))


def _torn(root: Path, version_min: int) -> Path | None:
    """Return the newest entry, if it is incomplete and nobody has acted on it."""
    entry = max(entries_in(root), default=None)
    if entry is None or version_of_file(entry) <= version_min or record_path(entry).exists() or is_complete(entry):
        return None
    return entry


def _missing_entries(root: Path, version_min: int) -> Results:
    """Yield the missing entries.

    Entries are cleaned up from the oldest on, and never the newest: so none may be missing between the existing ones.
    """
    versions = [version_of_file(path) for path in entries_in(root)]
    recorded = [version_of_file(path) for path in log_directory(root).glob(f"[0-9]*.json{RECORD_SUFFIX}")]
    newest = max([*versions, *recorded, version_min])
    missing = set(range(min(versions, default=0), newest + 1)) - set(versions)
    for version in sorted(missing)[:100]:
        yield Finding(str(entry_path(root, version)), None, "the entry of the store's log is missing", _LOG, GO_ON)


def _check_entry(entry: Path, pace: Pace, *, may_be_torn: bool) -> Results:
    matches, is_whole = _matches(entry), is_complete(entry)
    pace(entry.stat().st_size)
    if matches is False:
        yield Finding(str(entry), None, "the checksum is not that of its record", _LOG, GO_ON)
    elif may_be_torn:
        yield Note(str(entry), "a commit that a crash cut off before anybody acted on it; a broker removes it")
    elif not is_whole:
        yield Finding(str(entry), None, "the entry is incomplete", _LOG, GO_ON)


def _matches(path: Path) -> bool | None:
    try:
        return is_as_recorded(path)
    except CorruptError:
        return None  # the record's own check reports it


def _check_checkpoint(checkpoint: Path, pace: Pace) -> Results:
    is_sound = is_readable_checkpoint(checkpoint)
    pace(checkpoint.stat().st_size)
    if not is_sound:
        meaning = "It stands for the entries of the store's log up to its version; older ones may have been cleaned up."
        advice = "start the broker, which removes it where it is not needed, and says so where it is"
        yield Finding(str(checkpoint), None, "the checkpoint of the store's log is damaged", meaning, advice)


def _check_record(record: Path, pace: Pace) -> Results:
    pace(record.stat().st_size)
    try:
        is_as_recorded(record.with_name(record.name.removesuffix(RECORD_SUFFIX)))
    except CorruptError:
        meaning = "Whether the entry that it is of has changed cannot be told."
        yield Finding(str(record), None, "the record of an entry's checksum is damaged", meaning, DERIVED)
    except FileNotFoundError:
        return  # cleaned up meanwhile, or missing, which another check reports


def _check_hint(hint: Path, pace: Pace) -> Results:
    pace(hint.stat().st_size)
    try:
        is_sound = _is_true_of_its_checkpoint(json.loads(hint.read_text()), hint.parent)
    except (ValueError, LookupError, TypeError, OSError, pa.ArrowException):
        is_sound = False
    if not is_sound:
        meaning = "Opening the store takes longer, or fails."
        yield Finding(str(hint), None, "it says of its checkpoint what is not so", meaning, DERIVED)


def _is_true_of_its_checkpoint(fields: dict[str, int], directory: Path) -> bool:
    path = directory / f"{fields['version']:020d}.checkpoint.parquet"
    with pq.ParquetFile(path) as checkpoint:
        files = when_memory(lambda: checkpoint.read(columns=["add.path"]))["add"]
    claimed = (fields["size"], fields["sizeInBytes"], fields["numOfAddFiles"])
    return claimed == (len(files), path.stat().st_size, len(files) - files.null_count)


# -- its files ---------------------------------------------------------------------------------------------------------


def file_checks(place: Place, version_min: int) -> Iterator[Check]:
    """Yield the checks of all files that the newest version names.

    Raises:
        UnavailableError: object storage gives no answer, so nothing is known. InvalidArgumentError: it refuses.
    """
    torn = None if place.local is None else _torn(place.local, version_min)
    try:
        table = DeltaTable(place.uri, version=None if torn is None else version_of_file(torn) - 1)
        actions = pa.table(table.get_add_actions(flatten=True))
    except TableNotFoundError:
        if place.local is None and version_min >= 0:
            yield Check("store log", place.uri, 0, lambda _: _lost(place.uri, version_min))
        return
    except (DeltaError, OSError) as error:
        if (asked := unreached(place, error)) is not None:
            raise asked from error
        first_line = str(error).partition("\n")[0]
        yield Check("store log", place.uri, 0, lambda _: _unreadable(place.uri, first_line))
        return
    for shard in sorted(set(actions["partition.shard"].to_pylist())) if actions.num_rows else ():
        yield from snapshot_checks(place, FileColumns.of_actions(actions, shard))


def snapshot_checks(place: Place, columns: Iterable[FileColumns]) -> Iterator[Check]:
    """Yield the checks of these files."""
    for files in columns:
        for i in range(len(files)):
            run = partial(check_file, place, files.path[i], int(files.size[i]), _claimed(files, i))
            yield Check("store file", place.path(files.path[i]), int(files.size[i]), run)


def _claimed(files: FileColumns, i: int) -> FileContent:
    """Return the log's claims about the file at ``i``."""
    return FileContent(
        rows=int(files.rows[i]),
        due_min_ms=int(files.due_min_ms[i]),
        due_max_ms=int(files.due_max_ms[i]),
        seq_min=int(files.seq_min[i]),
        seq_max=int(files.seq_max[i]),
        topic_min=files.topic_min[i],
        topic_max=files.topic_max[i],
    )


def _unreadable(uri: str, error: str) -> Results:
    yield Finding(uri, None, f"the store's log cannot be read: {error}", _LOG, GO_ON)


def check_file(place: Place, relative: str, size: int, claimed: FileContent, pace: Pace) -> Results:
    """Check one file: that it exists, that its bytes match the checksums in its name, its footer the log.

    If the name has no checksum of the data, every page is read instead, for pages have their own checksums. If it has
    none at all, a foreign writer made the file, and the log may say less about it.
    """
    path = place.path(relative)
    [there] = place.sizes([relative])
    if there != size:
        is_there = "missing" if there is None else f"{there} bytes long"
        yield _damaged(path, None, f"the file is {is_there}; the store's log says {size} bytes")
        return
    if (what := _broken_checksum(place, relative, size, pace)) is not None:
        yield _damaged(path, _first_damaged(place, relative, lambda _: None), what)
        return
    try:
        content = FileContent.of(groups(place, relative))
    except CorruptError as error:
        yield _damaged(path, None, str(error).partition(": ")[2] or str(error))
        return
    if checksums_in(relative)[0] is None and (offset := _first_damaged(place, relative, pace)) is not None:
        yield _damaged(path, offset, "a page does not match its checksum")
    elif checksums_in(relative)[1] is not None and (wrong := "; ".join(differences(claimed, content))):
        yield _damaged(path, None, f"the store's log says that it has {wrong}")


def _damaged(path: str, offset: int | None, what: str) -> Finding:
    return Finding(path, offset, what, _FILE, f"{RESTORE}, or of the store")


def _broken_checksum(place: Place, relative: str, size: int, pace: Pace) -> str | None:
    """Return a description of the checksum in the name that does not match; None if all match.

    Reads the whole file if the name has a checksum of its data.
    """
    of_data, of_footer = checksums_in(relative)
    if of_data is None or of_footer is None:
        return None
    with place.filesystem.open_input_file(place.path(relative)) as file:
        end = size - footer_bytes_at(file)
        if end < 0:
            return f"{size} bytes are no Parquet file"
        if _crc32(file, 0, end, pace) != of_data:
            return "the checksum of its data, which is in its name, does not hold"
        if _crc32(file, end, size, pace) != of_footer:
            return "the checksum of its footer, which is in its name, does not hold"
    return None


def _crc32(file: Any, start: int, end: int, pace: Pace) -> int:
    crc = 0
    for at in range(start, end, CHUNK_BYTES):
        chunk = file.read_at(min(CHUNK_BYTES, end - at), at)
        crc = zlib.crc32(chunk, crc)
        pace(len(chunk))
    return crc


def _first_damaged(place: Place, relative: str, pace: Pace) -> int | None:
    """Return the offset of the first row group that cannot be read; None if all can, or the footer cannot."""
    try:
        with pq.ParquetFile(
            place.path(relative), metadata=FOOTERS.get(place, place.path(relative)), filesystem=place.filesystem
        ) as file:
            footer = file.metadata
    except (CorruptError, OSError, pa.ArrowException):
        return None
    for number in range(footer.num_row_groups):
        column = footer.row_group(number).column(0)
        try:
            check_group(place, relative, number)
        except CorruptError:
            return int(column.dictionary_page_offset or column.data_page_offset)
        pace(int(sum(footer.row_group(number).column(i).total_compressed_size for i in range(footer.num_columns))))
    return None
