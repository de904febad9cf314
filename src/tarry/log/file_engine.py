"""The engine ``files``: logs in a data directory, durable by fsync, owned by whoever holds its lock.

What is written waits for nobody, and ``sync`` is an fsync. The operating system frees the lock when its holder dies, so
no owner can be taken over while it lives, and a round needs no look at who owns the log: there is one. That rests on
one disk that one machine has. On a file system of several machines it rests on that system's locks. Where it has none,
a second owner writes its name over the first one's, and :meth:`FileEngine.is_owner` finds that, a moment later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tarry.base.errors import InvalidArgumentError, LockedError, TrimmedError
from tarry.base.lock_file import LockFile
from tarry.log.engine import LogPlace, Part
from tarry.log.files import AppendFile, Files, sync_directory
from tarry.log.frame import LogKind
from tarry.log.permissions import DISK_DIRECTORY
from tarry.log.segment import SegmentReader, list_segments, remove_segment, segment_path

DIRECTORIES = {
    LogKind.INTAKE: "intake",
    LogKind.READY: "ready",
    LogKind.ACKS: "acks",
    LogKind.AUDIT: "audit",
}
"""Names in the data directory, in the order in which one log may refer to what is in those before it."""
LOCK_FILE = "lock"
CACHE_FILE = "cache-of"
"""In a directory that is a cache of logs elsewhere: where they are."""
ROLE_FILE, TAKEOVER_FILE = "role.json", "takeover"
"""In such a directory: what its process is to the logs; and that it is told to take them over."""
BACKUP_FILE, BEGUN_FILE, RESTORING_FILE = "backup.json", "backup-begun", "restore-begun"
"""In a directory that is a whole backup, that is to be one, and that is being made of one."""
_NOT_SERVED = {
    BACKUP_FILE: "is a backup, which stays as it is; allowed: a data directory that tarry restore made of it",
    BEGUN_FILE: "is a backup that was interrupted, or is being made; allowed: a data directory",
    RESTORING_FILE: "was not restored to the end, or is being restored; allowed: the same tarry restore again",
}
LOCAL_FILES = (LOCK_FILE, CACHE_FILE, ROLE_FILE, f"{ROLE_FILE}.new", TAKEOVER_FILE, DISK_DIRECTORY)
"""Names in a directory that no log has."""
Cut = Mapping[LogKind, LogPlace]
"""A place in each log; one that is not named was not begun."""
_SIGNS = frozenset(
    (
        *(LOCK_FILE, CACHE_FILE, *_NOT_SERVED, *DIRECTORIES.values()),
        *("broker.id", "secret.key", "checkpoint.json", "handed", "reserve", "jobs.db", "registry", "store"),
        *("policies.json", "push.json", "tokens.json", "identities.json", "rocketmq", "pipeline", "held-for-backup"),
    )
)
"""Signs of a broker, of which one is enough: a start may have been killed after the first."""
_NAMED_MAX = 5
PART_BYTES = 1 << 20
"""About the size of a part that a follower gets."""


def hold_directory(data: Path) -> LockFile:
    """Hold a data directory, which is made if it is not there.

    Raises:
        LockedError: another process holds it, or this one does already.
    """
    data.mkdir(mode=0o750, parents=True, exist_ok=True)
    return LockFile(data / LOCK_FILE, held=data, user="broker")


def _check_no_strangers(data: Path) -> None:
    """Refuse a directory that has files, and none of a broker, before any is put beside them.

    Raises:
        InvalidArgumentError: that is so.
    """
    try:
        # Hidden ones are of file servers and desktops (.snapshot, .DS_Store), or keep a directory in git.
        there = sorted(
            path.name for path in data.iterdir() if path.name != DISK_DIRECTORY and not path.name.startswith(".")
        )
    except OSError:
        return  # it is not there, or who opens it tells what is wrong with it
    if not there or any(name in _SIGNS for name in there):
        return
    more = f" and {len(there) - _NAMED_MAX} more" if len(there) > _NAMED_MAX else ""
    raise InvalidArgumentError(
        f"{data} has {', '.join(there[:_NAMED_MAX])}{more}, and nothing of a broker; allowed: a data directory, or a "
        "directory that is empty or not there"
    )


def cache_of(data: Path) -> str | None:
    """Return where the logs are of which a directory is a cache; None: it is none."""
    try:
        return (data / CACHE_FILE).read_text().strip()
    except FileNotFoundError:
        return None


def _check_no_cache(data: Path) -> None:
    name = cache_of(data)
    if name is None:
        return
    raise LockedError(
        f"{data} is a cache of the logs in {name}, and what it has may be old; allowed: --log {name}, or another "
        "directory"
    )


def check_no_backup(data: Path) -> None:
    """Refuse a directory that is a backup, or is being restored. Raises LockedError."""
    for name, what in _NOT_SERVED.items():
        if (data / name).exists():
            raise LockedError(f"{data} {what}")


class FileLog:
    """A log of a :class:`FileEngine`."""

    def __init__(self, files: Files, directory: Path, kind: LogKind) -> None:
        self.kind = kind
        self.directory = directory
        self._files = files
        self._synced: dict[int, int] = {}  # of segments that were opened: how much is durable

    def open(self, segment: int) -> AppendFile:
        file = self._files.open_append(segment_path(self.directory, segment))
        self._synced[segment] = 0
        return _SegmentFile(file, segment, self._synced)

    def discard(self, segment: int) -> None:
        self._synced.pop(segment, None)
        self._files.remove(segment_path(self.directory, segment))
        sync_directory(self.directory)

    def trim(self, segment: int) -> None:
        self._synced.pop(segment, None)
        remove_segment(self._files, segment_path(self.directory, segment))

    def end(self) -> LogPlace | None:
        """Return how far it is durable, or how far a former owner wrote it; None: it was never begun."""
        if synced := self._synced.copy():
            return LogPlace(*max(synced.items()))
        segments = list_segments(self.directory)
        return LogPlace(segments[-1], segment_path(self.directory, segments[-1]).stat().st_size) if segments else None

    def parts(self, start: LogPlace | None, end: LogPlace) -> Iterator[Part]:
        """Yield what is between two places. Raises TrimmedError: it is not there any more."""
        segments = [each for each in list_segments(self.directory) if each <= end.segment]
        if start is not None:
            if start.segment not in segments:
                raise TrimmedError(f"{segment_path(self.directory, start.segment)} was deleted")
            segments = segments[segments.index(start.segment) :]
        for segment in segments:
            begin = start.position if start is not None and segment == start.segment else 0
            yield from self._parts_of(segment, begin, end.position if segment == end.segment else None)

    def _parts_of(self, segment: int, begin: int, end: int | None) -> Iterator[Part]:
        path = segment_path(self.directory, segment)
        try:
            reader = SegmentReader(path)
        except FileNotFoundError as error:
            raise TrimmedError(f"{path} was deleted") from error
        with reader:
            end = reader.size if end is None else end
            while begin < end:
                content = reader.bytes_at(begin, min(PART_BYTES, end - begin))
                yield Part(self.kind, segment, begin, content)
                begin += len(content)


class _SegmentFile:
    """A segment file that notes how much of it is durable."""

    def __init__(self, file: AppendFile, segment: int, synced: dict[int, int]) -> None:
        self._file, self._segment, self._synced = file, segment, synced
        self.write, self.truncate, self.close = file.write, file.truncate, file.close

    @property
    def size(self) -> int:
        return self._file.size

    def sync(self) -> None:
        size = self._file.size
        self._file.sync()
        self._synced[self._segment] = size

    def begin_sync(self) -> Callable[[], None]:
        return self.sync


class FileEngine:
    """Logs in a data directory. ``files`` is the disk."""

    shared = None
    loss = "its file lock was deleted, or another one wrote to it"

    def __init__(self, files: Files, data: Path) -> None:
        self.files, self._data = files, data
        self._logs = {kind: FileLog(files, data / name, kind) for kind, name in DIRECTORIES.items()}
        self._lock: LockFile | None = None

    def claim(self) -> int:
        """Hold the directory.

        Raises:
            LockedError: another process holds it, or this one does already; or it is a cache of logs elsewhere.
            InvalidArgumentError: it is a directory of something else.
        """
        _check_no_strangers(self._data)
        self._lock = hold_directory(self._data)
        try:
            _check_no_cache(self._data)
            check_no_backup(self._data)
        except BaseException:
            self._lock.release()
            raise
        return self._lock.number

    def is_owner(self) -> bool:
        return self._lock is not None and self._lock.is_held

    def log(self, kind: LogKind) -> FileLog:
        return self._logs[kind]

    def end(self) -> Cut:
        # Backwards: what a log refers to is in those before it, and was written before.
        ends = {kind: self._logs[kind].end() for kind in reversed(self._logs)}
        return {kind: end for kind in self._logs if (end := ends[kind]) is not None}

    def follow(self, position: Cut | None) -> Iterator[tuple[Cut, Part]]:
        reached = position or {}
        for kind, end in self.end().items():
            for part in self._logs[kind].parts(reached.get(kind), end):
                reached = {**reached, kind: part.end}
                yield reached, part

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
