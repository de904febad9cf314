"""The files of one version of a store's table: those that the version names, and the log up to it.

A copy of them is a table at that version. What later versions removed is kept for the retention, so a version can be
copied while newer ones are committed. Format of a table: ``docs/formats-store.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from tarry.backup.files import LOG, copy_content, copy_file, link_file
from tarry.backup.manifest import FileMark
from tarry.base.errors import NotFoundError
from tarry.store.place import Place
from tarry.store.unreached import unreached
from tarry.verify.check import Pace


def copy_store(uri: str, version: int, target: Path, pace: Pace, *, link: bool) -> dict[str, FileMark]:
    """Copy a version of a table to the directory ``target``; return its files by their paths in it.

    ``link``: files of data, which never change, by hard links where that can be.

    Raises:
        NotFoundError: the version, or a file of it, is not there any more. OSError: there is no room.
        UnavailableError: object storage gives no answer. InvalidArgumentError: it refuses.
    """
    place = Place.of(uri)
    names = data_files(place, version)
    copied = {}
    for name in [*_log_files(place, version), *names]:
        try:
            copied[name] = _copy(place, name, target / name, pace, link=link and name in names)
        except FileNotFoundError as error:
            if not target.exists() or (place.local is not None and (place.local / name).exists()):
                raise
            raise _gone(place, version, f"{name} is not there any more") from error
    return copied


def data_files(place: Place, version: int) -> frozenset[str]:
    """Return the files of data of a version, by their paths in the table.

    Raises: see :func:`copy_store`.
    """
    try:
        actions = pa.table(DeltaTable(place.uri, version=version).get_add_actions(flatten=True))
    except (DeltaError, OSError) as error:
        if (asked := unreached(place, error)) is not None:
            raise asked from error
        raise _gone(place, version, str(error).partition("\n")[0]) from error
    return frozenset(unquote(path) for path in actions["path"].to_pylist())


def check_store(uri: str, version: int) -> None:
    """Check that a version, and each file of it, can be copied. Raises: see :func:`copy_store`."""
    place = Place.of(uri)
    names = sorted(data_files(place, version))
    infos = place.filesystem.get_file_info([f"{place.base}/{name}" for name in names])
    missing = [name for name, info in zip(names, infos, strict=True) if info.size is None]
    if missing:
        raise _gone(place, version, f"{len(missing)} of its {len(names)} files are not there, {missing[0]} among them")


def _gone(place: Place, version: int, what: str) -> NotFoundError:
    return NotFoundError(
        f"version {version} of the store {place.uri} cannot be copied: {what}; allowed: a version that is still there. "
        "What newer ones removed is kept for store_retention_ms (a day, unless it is set to more)"
    )


def _log_files(place: Place, version: int) -> Iterator[str]:
    """Yield the entries and checkpoints up to a version, and their records."""
    for info in place.filesystem.get_file_info(fs.FileSelector(f"{place.base}/{LOG}", allow_not_found=True)):
        number = info.base_name.partition(".")[0]
        if number.isdecimal() and int(number) <= version:
            yield f"{LOG}/{info.base_name}"


def _copy(place: Place, name: str, target: Path, pace: Pace, *, link: bool) -> FileMark:
    if place.local is not None:
        return (link_file if link else copy_file)(place.local / name, target, pace)
    with place.filesystem.open_input_stream(f"{place.base}/{name}") as file:
        return copy_content(file, target, pace)
