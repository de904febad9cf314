"""The engine ``objects``: logs in an object store that machines share; the directory is a cache.

Callers are threads; requests are carried out on an event loop in a thread of its own, so that many are under way.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeVar

from tarry.base.clock import Clock
from tarry.base.errors import CorruptError, FatalError, TrimmedError
from tarry.base.event_loop import iterate
from tarry.base.lock_file import LockFile
from tarry.log.engine import Part
from tarry.log.file_engine import DIRECTORIES, hold_directory
from tarry.log.files import AppendFile, Buffer, Files
from tarry.log.frame import LogKind
from tarry.log.objects.content import TRIMMED
from tarry.log.objects.history import START, RoundPlace, claim_epoch, follow_parts, reached, read_former
from tarry.log.objects.rounds import EpochRounds
from tarry.log.objects.store import ObjectStore, try_out
from tarry.log.segment import remove_segment, segment_path

A = TypeVar("A")
LOOK_S = 5.0
"""Time between two looks of an owner that is asked."""
LOOK_WAIT_S = 1.0
"""Longest wait for what it sees; after that, the next call returns it."""


class ObjectEngine:
    """Logs in ``store``, one life of one owner; ``data`` is its directory, ``files`` the disk that has it.

    It follows the logs of whoever owns them, too: :meth:`end` and :meth:`follow` need no claim.
    """

    fences_store = True

    def __init__(self, store: ObjectStore, files: Files, data: Path, clock: Clock, look_s: float = LOOK_S) -> None:
        self._store, self._files, self._data, self._clock = store, files, data, clock
        self._requests = _Requests()
        self._lock: LockFile | None = None
        self._rounds: EpochRounds | None = None
        self._epoch = 0
        self._trimmed: dict[LogKind, int] = {}
        self._look: Future[None] | None = None
        self._look_s, self._looked_s = look_s, time.monotonic()

    def claim(self) -> int:
        """Become the owner; whoever was it before answers nothing any more.

        The directory becomes what the log says; nothing that is in it counts.

        Raises:
            LockedError: another process on this machine uses the directory.
            UnavailableError: the store cannot be asked.
            FatalError: it does not do what the engine rests on; OwnershipLostError: another one has claimed meanwhile.
            CorruptError: the log is damaged; names the object.
        """
        self._lock = hold_directory(self._data)
        try:
            self._rounds = self._requests.run(self._claim())
        except BaseException:
            self.release()
            raise
        return self._epoch

    async def _claim(self) -> EpochRounds:
        await try_out(self._store)
        claim = await claim_epoch(self._store, f"{socket.gethostname()}:{os.getpid()}")
        cache = _Directory(self._files, self._data)
        try:
            history = await read_former(self._store, claim.epoch, cache)
        finally:
            cache.close()
        self._epoch, self._trimmed = claim.epoch, dict(history.trimmed)
        rounds = EpochRounds(self._store, claim, history, self._clock)
        await rounds.first()
        return rounds

    def is_owner(self) -> bool:
        """Return whether nobody else was seen to own the logs; a store that cannot be asked shows nobody."""
        rounds = self._owned()
        if self._look is None or (self._look.done() and time.monotonic() >= self._looked_s + self._look_s):
            self._looked_s = time.monotonic()
            self._look = self._requests.start(rounds.look_around())
        wait([self._look], LOOK_WAIT_S)
        return rounds.lost is None

    def log(self, kind: LogKind) -> ObjectLog:
        return ObjectLog(self, self._files, self._data / DIRECTORIES[kind], kind)

    def add(self, part: Part) -> None:
        """Put a part into the round that comes next."""
        rounds = self._owned()
        if rounds.add(part):
            self._requests.start(rounds.flush())

    def sync(self) -> None:
        """Wait until all that was added is answered, however long the store cannot be asked.

        Raises:
            OwnershipLostError: another one owns the logs, from now on for ever.
        """
        self._requests.run(self._owned().sync())

    def trim(self, kind: LogKind, segment: int) -> None:
        """Note that a segment of a log, and those before it, are needed by nobody.

        The note is part of the next round, and later owners do not get it. Its bytes stay in the store: they lie in
        rounds with what others need, and what a new owner begins with is the first round.
        """
        if segment >= self._trimmed.get(kind, 0):
            self._trimmed[kind] = segment + 1
            self.add(Part(kind, segment, TRIMMED, b""))

    def end(self) -> RoundPlace:
        """Return how far the logs are durable. Raises UnavailableError."""
        if self._rounds is not None:
            return RoundPlace(self._epoch, self._rounds.answered, 0)
        return self._requests.run(reached(self._store))

    def follow(self, position: RoundPlace | None) -> Iterator[tuple[RoundPlace, Part]]:
        """Yield what is behind ``position``; the owner leaves out what it trimmed, others get all.

        Raises:
            TrimmedError: the owner has trimmed a segment behind ``position``.
            UnavailableError: the store cannot be asked.
        """
        until = None if self._rounds is None else self.end()
        for place, part in iterate(self._requests.loop, follow_parts(self._store, position or START, until)):
            if part.segment >= self._trimmed.get(part.kind, 0):
                yield place, part
            elif position is not None:
                raise TrimmedError(f"segment {part.segment} of {part.kind.name.lower()} was deleted")

    def release(self) -> None:
        """Give the logs up; who claims them next has to look for this owner's end all the same."""
        self._requests.close()
        if self._lock is not None:
            self._lock.release()

    def _owned(self) -> EpochRounds:
        if self._rounds is None:
            raise FatalError(f"the logs of {self._data} were not claimed")
        return self._rounds


class ObjectLog:
    """A log of an :class:`ObjectEngine`."""

    def __init__(self, engine: ObjectEngine, files: Files, directory: Path, kind: LogKind) -> None:
        self.kind, self.directory = kind, directory
        self._engine, self._files = engine, files

    def open(self, segment: int) -> AppendFile:
        path = segment_path(self.directory, segment)
        return _CachedSegment(self._engine, self._files.open_append(path), path, self.kind, segment)

    def discard(self, segment: int) -> None:
        self._files.remove(segment_path(self.directory, segment))
        self._engine.add(Part(self.kind, segment, 0, b""))
        self._engine.sync()

    def trim(self, segment: int) -> None:
        self._engine.trim(self.kind, segment)
        remove_segment(self._files, segment_path(self.directory, segment))


class _CachedSegment:
    """A segment in the directory, whose writes become parts of rounds. What was written is never cut off."""

    def __init__(self, engine: ObjectEngine, file: AppendFile, path: Path, kind: LogKind, segment: int) -> None:
        self._engine, self._file, self._path, self._kind, self._segment = engine, file, path, kind, segment
        self._kept = file.size
        self.close = file.close

    @property
    def size(self) -> int:
        return self._file.size

    def write(self, buffers: Sequence[Buffer]) -> None:
        content = b"".join(buffers)
        self._file.write([content])
        self._engine.add(Part(self._kind, self._segment, self._kept, content))
        self._kept += len(content)

    def truncate(self, size: int) -> None:
        if size < self._kept:
            raise CorruptError(
                f"{self._path} at offset {size}: it is not what the log in the store has; it is a cache, and is made "
                "again at the next start"
            )
        self._file.truncate(size)

    def sync(self) -> None:
        self._engine.sync()


class _Directory:
    """The segments in a data directory, while a claim makes them again."""

    def __init__(self, files: Files, data: Path) -> None:
        self._files, self._data = files, data
        self._last: tuple[Path, AppendFile] | None = None

    def clear(self) -> None:
        self.close()
        for name in DIRECTORIES.values():
            if (self._data / name).exists():
                shutil.rmtree(self._data / name)

    def apply(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if part.position == TRIMMED:
                self._trim(part)
            elif part.content:
                self._write(part)
            else:
                self.close()
                self._files.remove(self._path(part.kind, part.segment))

    def close(self) -> None:
        if self._last is not None:
            self._last[1].close()
            self._last = None

    def _write(self, part: Part) -> None:
        path = self._path(part.kind, part.segment)
        if self._last is None or self._last[0] != path:
            self.close()
            self._last = path, self._files.open_append(path)
        file = self._last[1]
        if file.size != part.position:
            raise CorruptError(f"{path}: the log goes on at {part.position}, and it has {file.size} bytes")
        file.write([part.content])

    def _trim(self, part: Part) -> None:
        self.close()
        for path in (self._data / DIRECTORIES[part.kind]).glob("*.log"):
            if int(path.stem) <= part.segment:
                self._files.remove(path)

    def _path(self, kind: LogKind, segment: int) -> Path:
        return segment_path(self._data / DIRECTORIES[kind], segment)


class _Requests:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="tarry-log-objects", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, A]) -> Future[A]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, A]) -> A:
        return self.start(work).result()

    def close(self) -> None:
        """End all that is under way. A PUT may arrive all the same."""
        if self.loop.is_closed():
            return
        self.run(self._cancel())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _cancel(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
