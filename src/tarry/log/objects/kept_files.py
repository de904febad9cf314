"""Files of a directory whose small ones are part of the logs in a store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from pathlib import Path, PurePath

from tarry.base.errors import CorruptError
from tarry.log.engine import Part
from tarry.log.file_engine import LOCAL_FILES
from tarry.log.files import AppendFile, Closeable, Files, OverwriteFile
from tarry.log.objects.content import decode_file, encode_file


def inside(data: Path, name: str) -> Path:
    """Return the path of a file in a directory.

    Raises:
        CorruptError: the name leads out of it, or is none of ours.
    """
    path = PurePath(name)
    if not name or "\0" in name or path.is_absolute() or ".." in path.parts or path.parts[0] in LOCAL_FILES:
        raise CorruptError(f"the log has a file {name!r:.100}, which is none of a data directory")
    return data / path


class KeptFiles:
    """The files of the directory ``data``; small ones that are replaced become parts of rounds.

    It is a :class:`tarry.log.files.Files`.
    ``local``: patterns of names that stay in the directory. ``add`` puts a part into the next round, ``sync`` waits
    until it is answered.
    """

    def __init__(
        self,
        files: Files,
        data: Path,
        local: Collection[str],
        add: Callable[[Part], None],
        sync: Callable[[], None],
    ) -> None:
        self._files, self._data, self._local, self._add, self._sync = files, data, local, add, sync
        self._lock = threading.Lock()
        self._kept: dict[str, bytes] = {}

    def kept(self) -> dict[str, bytes]:
        """Return what each of them has, by name: all of it is in rounds that were begun, or in the next one."""
        with self._lock:
            return self._kept.copy()

    def apply(self, part: Part) -> None:
        """Write the file of a part that was read; durable only as a cache is."""
        name, content = decode_file(part)
        self._kept[name] = content
        path = inside(self._data, name)
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        path.touch(mode=0o600)  # there may be secrets in it
        path.write_bytes(content)

    def restore(self, name: str, content: bytes) -> None:
        """Note a file that a base has."""
        self._kept[name] = content

    def forget(self) -> None:
        """Forget what was read: reading begins again."""
        self._kept.clear()

    def keep(self, path: Path) -> None:
        """Make a file part of the logs as it is now; durable on return."""
        self._keep(path, path.read_bytes())

    def _keep(self, path: Path, content: bytes) -> None:
        name = path.relative_to(self._data).as_posix()
        with self._lock:  # the order of the parts is that of the contents
            self._kept[name] = content
            self._add(encode_file(name, content))
        self._sync()

    def _is_local(self, path: Path) -> bool:
        if not path.is_relative_to(self._data):
            return True
        name = PurePath(path.relative_to(self._data).as_posix())
        return any(name.match(pattern) for pattern in self._local)

    # -- Files ---------------------------------------------------------------------------------------------------------

    def replace(self, path: Path, content: bytes) -> None:
        self._files.replace(path, content)
        if not self._is_local(path):
            self._keep(path, content)

    def open_append(self, path: Path) -> AppendFile:
        return self._files.open_append(path)

    def open_overwrite(self, path: Path) -> OverwriteFile:
        return self._files.open_overwrite(path)

    def remove(self, path: Path) -> None:
        self._files.remove(path)

    def free_bytes(self, path: Path) -> int:
        return self._files.free_bytes(path)

    def adopt(self, database: Closeable, directory: Path) -> None:
        self._files.adopt(database, directory)
