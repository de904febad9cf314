"""The rights of this process to the files of a data directory, looked at before any is opened.

What may not be read looks missing to who lists a directory, and damaged to who opens a database. Neither is true, and
neither may be acted on: a registry would be made anew, and a directory be restored from an older backup.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

DENIED = (errno.EACCES, errno.EPERM)
DISK_DIRECTORY = "lost+found"
"""Of the file system, where a directory is the root of one."""
_ALLOWED = "files that it may read, in directories that it may write"
_EFFECTIVE = os.access in os.supports_effective_ids


def check_permissions(directory: Path) -> None:
    """Check that files below ``directory`` can be read, and directories be written.

    A directory that is not there is passed over. Files of the store's data and of Spark are left to who reads them,
    and ``lost+found`` is the file system's. A file system that is mounted read-only is another matter: the first write
    says so.

    Raises:
        PermissionError: the first that cannot, with its owner, its mode, and this process's user.
    """
    if not os.path.lexists(directory):
        return
    writes = 0 if os.statvfs(directory).f_flag & os.ST_RDONLY else os.W_OK
    for path, is_directory in _entries(directory):
        wanted = os.R_OK | os.X_OK | writes if is_directory else os.R_OK
        # A file that has gone meanwhile is none that is denied.
        if not os.access(path, wanted, effective_ids=_EFFECTIVE) and os.path.lexists(path):
            raise denial(path)


def _entries(directory: Path) -> Iterator[tuple[Path, bool]]:
    """Give each path before it is looked into, so that what may not be listed is named first."""
    yield directory, True
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in ("pipeline", DISK_DIRECTORY):
                    yield from _entries(Path(entry.path))
            elif not entry.name.endswith(".parquet"):
                yield Path(entry.path), False


def denied_error(error: Exception, place: Path) -> PermissionError | None:
    """Return the error of a missing right that a library, such as a database, reports in words alone.

    None: ``error`` is no such error.
    """
    said = str(error).partition("\n")[0]
    if not any(os.strerror(each) in said for each in DENIED):
        return None
    return PermissionError(errno.EACCES, f"{said}; {_whose(place)}", str(place))


def denial(place: Path, number: int = errno.EACCES, allowed: str = _ALLOWED) -> PermissionError:
    """Return the error of a path that this process may not use: whose it is, and who we are."""
    return PermissionError(number, f"{os.strerror(number)}; {_whose(place, allowed)}", str(place))


def _whose(place: Path, allowed: str = _ALLOWED) -> str:
    # Of one that could not be made, the directory that it was to be made in.
    for each in (place, *place.absolute().parents):
        try:
            found = each.stat()
        except OSError:
            continue
        named = "it" if each == place else str(each)
        return (
            f"{named} belongs to {_user(found.st_uid)}, with mode {stat.S_IMODE(found.st_mode):04o}, and this process "
            f"is of {_user(os.geteuid())}; allowed: {allowed}"
        )
    return f"this process is of {_user(os.geteuid())}; allowed: {allowed}"


def _user(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name} ({number})"
    except KeyError:
        return f"user {number}"
