"""The engine ``objects``: logs in an object store that machines share; the directory is a cache.

Callers are threads; requests are carried out on an event loop in a thread of its own, so that many are under way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from tarry.base.clock import Clock
from tarry.base.errors import (
    ClosedError,
    CorruptError,
    FatalError,
    InvalidArgumentError,
    TrimmedError,
    UnavailableError,
)
from tarry.base.event_loop import iterate
from tarry.base.histogram import Histogram
from tarry.base.lock_file import LockFile
from tarry.base.setting_types import STANDING_BY
from tarry.base.types import NEVER_MS
from tarry.log.engine import ClaimWatch, Part
from tarry.log.file_engine import DIRECTORIES, hold_directory
from tarry.log.files import AppendFile, Buffer, Files
from tarry.log.frame import LogKind
from tarry.log.objects.bases import EpochBases
from tarry.log.objects.cache import CacheDirectory
from tarry.log.objects.content import HANDED_OVER, LEFT, TRIMMED
from tarry.log.objects.history import START, Claim, RoundPlace, claim_after, follow_parts, reached
from tarry.log.objects.kept_files import KeptFiles
from tarry.log.objects.lease import OwnerLease
from tarry.log.objects.reading import LogReader
from tarry.log.objects.request_loop import RequestLoop
from tarry.log.objects.role import RoleFile
from tarry.log.objects.rounds import EpochRounds
from tarry.log.objects.silence import wait_for_silence
from tarry.log.objects.standby import Standby
from tarry.log.objects.store import PATIENCE_S, CountedObjects, ObjectStore, asked, is_refused, try_out
from tarry.log.segment import remove_segment, segment_path

log = logging.getLogger(__name__)

A = TypeVar("A")
Takeover = Literal["silent", "auto", "manual", "now"]
LOOK_S = 5.0
"""Time between two looks of an owner that is asked."""
LOOK_WAIT_S = 1.0
"""Longest wait for what it sees; after that, the next call returns it."""
STOP_LOOK_S = 0.2
SILENT_S = 5.0
"""A store that answers nothing for so long cannot be reached, as far as people are told."""
HAND_OVER_S = 5.0
"""Longest wait of an owner that stops for its last round."""


class ObjectEngine:
    """Logs in ``store``, one life of one owner; ``data`` is its directory, ``files`` the disk that has it.

    It follows the logs of whoever owns them, too: :meth:`end` and :meth:`follow` need no claim.

    Args:
        store: the shard's objects.
        files: the disk of the directory.
        data: the directory, a cache: a claim empties it.
        clock: the wall clock of rounds.
        look_s: seconds between two looks of an owner that is asked.
        name: URI of the logs, for people; the directory has it in :data:`CACHE_FILE`.
        local: patterns of small files that are no part of the logs.
        lease: of hand-outs.
        gap_s: shortest time between two rounds: the longer, the fewer requests, and the longer a caller waits.
        takeover: what a claim does where an owner lives. ``silent``: it is refused. ``auto``: it stands by, until that
            owner is silent, hands over, or :class:`RoleFile` tells it to take over; ``manual``: until the last alone.
            ``now``: it takes over. While it stands by, the claiming thread asks ``is_stopped()``.
    """

    def __init__(
        self,
        store: ObjectStore,
        files: Files,
        data: Path,
        clock: Clock,
        look_s: float = LOOK_S,
        *,
        name: str = "an object store",
        local: Collection[str] = (),
        lease: OwnerLease | None = None,
        takeover: Takeover = "now",
        is_stopped: Callable[[], bool] = lambda: False,
        gap_s: float = 0.0,
    ) -> None:
        self._store, self._disk, self._data, self._clock = CountedObjects(store), files, data, clock
        self._name = name
        self._gap_s = gap_s
        self._lease, self._takeover, self._is_stopped = lease or OwnerLease(), takeover, is_stopped
        self.files = KeptFiles(files, data, local, self.add, self.sync)
        self.left_ms = NEVER_MS
        """See :attr:`tarry.log.engine.SharedLogs.left_ms`."""
        self.lacks_base = False
        """See :attr:`tarry.log.engine.SharedLogs.lacks_base`."""
        self._cache = CacheDirectory(files, data, self.files, name)
        self._reader = LogReader(self._store, self._cache)
        self._role = RoleFile(data, clock, name)
        self._requests = RequestLoop()
        self._lock: LockFile | None = None
        self._watch: ClaimWatch | None = None
        self._rounds: EpochRounds | None = None
        self._epoch = 0
        self._trimmed: dict[LogKind, int] = {}
        self._bases: EpochBases | None = None
        self._trimming: asyncio.Task[None] | None = None
        self._look: Future[None] | None = None
        self._turned_s = 0.0
        self._look_s, self._looked_s = look_s, time.monotonic()

    def claim(self) -> int:
        """Become the owner; whoever was it before answers nothing any more.

        The directory becomes what the log says; nothing that is in it counts.

        Raises:
            ClosedError: it was told to stop.
            LockedError: another process on this machine uses the directory, or it has logs of its own; or the owner of
                the logs lives.
            UnavailableError: the store cannot be asked. InvalidArgumentError: it refuses: a wrong key, say.
            FatalError: it does not do what the engine rests on; OwnershipLostError: another one has claimed meanwhile.
            CorruptError: the log is damaged; names the object.
        """
        self._lock = hold_directory(self._data)
        try:
            self._rounds = self._unless_stopped(self._claim())
        except BaseException as error:
            self.release()
            if is_refused(error):
                raise InvalidArgumentError(str(error)) from error
            raise
        return self._epoch

    def _unless_stopped(self, work: Coroutine[Any, Any, A]) -> A:
        future = self._requests.start(work)
        while wait([future], STOP_LOOK_S).not_done:
            if self._is_stopped():
                raise ClosedError("stopped before the logs were its own")
        return future.result()

    async def _claim_after_former(self) -> Claim:
        """Claim when the takeover is allowed."""
        await try_out(self._store)
        await asked(lambda: self._store.list("trial/"), PATIENCE_S)  # a right of its own
        stands_by = self._takeover in STANDING_BY
        former = self._stand_by() if stands_by else self._former
        claim = None
        while claim is None:
            epoch = await former()
            self._cache.mark()
            try:
                claim = await claim_after(self._store, f"{socket.gethostname()}:{os.getpid()}", epoch)
            except UnavailableError as error:
                if not stands_by:
                    raise
                log.warning("standing by: the logs cannot be claimed: %s", error)
        return claim

    async def _former(self) -> int | None:
        """Return the newest epoch if it is over; None: any may be taken over. Raises: see :meth:`claim`."""
        return None if self._takeover == "now" else await wait_for_silence(self._store)

    def _stand_by(self) -> Callable[[], Awaitable[int | None]]:
        self._cache.mark()
        by_itself = self._takeover == "auto"
        standby = Standby(
            self._store,
            self._reader,
            self._clock,
            by_itself=by_itself,
            is_told=self._role.is_told,
            on_silence=(lambda: None) if self._watch is None else self._watch.suspected,
        )
        self._role.begin("standby", lambda: {"takeover": self._takeover, **standby.state, **self._bucket})
        return standby.wait

    async def _claim(self) -> EpochRounds:
        claim = await self._claim_after_former()
        claimed_s = self._lease.now_s()
        if self._watch is not None:
            self._watch.claimed(claim.epoch)
        self._role.begin("owner", lambda: {"epoch": claim.epoch, "leased": self.may_hand_out(), **self._bucket})
        try:
            history = await self._reader.read_former(claim.epoch)
            self._cache.finish()
        finally:
            self._cache.close()
        self._epoch, self._trimmed = claim.epoch, dict(history.trimmed)
        base = self._reader.base
        self.lacks_base = claim.epoch > 1 and (base is None or base.epoch < claim.epoch - 1)
        if history.handed_over_ms is not None:
            self.left_ms = history.handed_over_ms
        elif claim.epoch > 1:
            self._lease.wait_for_former(claimed_s)
            # What a former owner handed out was due by the clock of an answered round and a lease, so the log knows it.
            lease_ms = round(1000 * self._lease.lease_s)
            self.left_ms = max(self._clock.now_ms(), history.clock_ms + lease_ms)
        rounds = EpochRounds(self._store, claim, history, self._clock, lease=self._lease, gap_s=self._gap_s)
        await rounds.first()
        self._bases = EpochBases(self._store, claim.epoch)
        self._beat = asyncio.create_task(rounds.beat())
        wait_s = max(0.0, self._lease.begins_in_s)
        log.info("owner of %s, epoch %d; handing out in %.1f s", self._name, self._epoch, wait_s)
        return rounds

    def is_owner(self) -> bool:
        """Return whether nobody else was seen to own the logs; a store that cannot be asked shows nobody."""
        rounds = self._owned()
        if self._look is None or (self._look.done() and time.monotonic() >= self._looked_s + self._look_s):
            self._looked_s = time.monotonic()
            self._look = self._requests.start(rounds.look_around())
        wait([self._look], LOOK_WAIT_S)
        return rounds.lost is None

    @property
    def loss(self) -> str:
        """See :attr:`tarry.log.engine.LogEngine.loss`."""
        return str(self._owned().lost)

    @property
    def shared(self) -> ObjectEngine:
        """Itself: see :class:`tarry.log.engine.SharedLogs`."""
        return self

    @property
    def until_ms(self) -> int:
        """See :attr:`tarry.log.engine.SharedLogs.until_ms`."""
        return self._lease.until_ms

    @property
    def state(self) -> dict[str, Any]:
        """See :attr:`tarry.log.engine.SharedLogs.state`."""
        store, rounds, lease = self._store, self._owned(), self._lease
        silent_ms = round(1000 * rounds.times.silent_s)
        is_away = silent_ms >= 1000 * lease.lease_s
        waits = "waiting for former leases" if lease.begins_in_s > 0 else "handing out"
        return {
            "uri": self._name,
            "role": "owner" if rounds.lost is None else "former owner",
            "state": "store away" if is_away else waits,
            "away_since_ms": self._clock.now_ms() - silent_ms if is_away else None,
            "epoch": self._epoch,
            "rounds": rounds.answered,
            "leased": self.may_hand_out(),
            "answered_before_ms": silent_ms,
            "round_ms": _milliseconds(rounds.times.took_us()),
            "requests": store.counts,
        }

    @property
    def _bucket(self) -> dict[str, Any]:
        store = self._store
        is_silent = asyncio.get_running_loop().time() - store.answered_s > SILENT_S
        error = store.error or (f"no answer for {SILENT_S:g} s" if is_silent else None)
        return {"bucket": {"reachable": error is None, "error": error}, "requests": store.counts}

    def watch_claim(self, watch: ClaimWatch) -> None:
        self._watch = watch

    def serve(self, addresses: Mapping[str, str]) -> None:
        self._role.serve(addresses)

    def rounds_us(self) -> Histogram:
        return self._owned().times.took_us()

    def may_hand_out(self) -> bool:
        return self._lease.lasts()

    @property
    def lease_left_ms(self) -> int:
        return max(0, int(1000 * self._lease.left_s))

    def is_confirmed(self) -> bool:
        return self._lease.is_confirmed()

    def renew(self) -> None:
        self._requests.run(self._owned().renew())

    def confirm(self) -> None:
        self._requests.run(self._owned().confirm())

    def keep(self, path: Path) -> None:
        self.files.keep(path)

    def keep_base(self, files: Mapping[str, Path]) -> None:
        """See :meth:`tarry.log.engine.SharedLogs.keep_base`."""
        self._requests.run(self._keep_base(files))

    async def _keep_base(self, files: Mapping[str, Path]) -> None:
        rounds, bases = self._owned(), self._bases
        assert bases is not None, "claimed"
        if self._trimming is not None:
            await asyncio.wait([self._trimming])
        at = await rounds.mark()
        # Now, so that all of the rounds before the place is in them; and all that is in them is in rounds.
        manifest = await bases.put(at, await asyncio.to_thread(self._cache.sources, files))
        # What was added since is in the files, too. And the round of the mark may be empty, behind all that was added:
        # a base that is beyond its epoch's end does not count, and what is before it may be deleted.
        await rounds.sync()
        await rounds.reach(manifest.position)
        await bases.complete(manifest)
        self._trimming = asyncio.create_task(_logged(bases.trim(manifest)))

    def hand_over(self, left_ms: int) -> None:
        """See :meth:`tarry.log.engine.SharedLogs.hand_over`.

        Nothing is said while former leases may last: the next owner has to wait for them as well. Neither if the store
        gives no answer for some seconds.
        """
        if self._lease.begins_in_s > 0:
            return
        self._lease.end()
        log.info("epoch %d hands over", self._epoch)
        left = Part(LogKind.FILES, 0, HANDED_OVER, LEFT.pack(left_ms))
        with suppress(FutureTimeoutError):
            self._requests.start(self._owned().hand_over(left)).result(HAND_OVER_S)

    def log(self, kind: LogKind) -> ObjectLog:
        return ObjectLog(self, self._cache, self._disk, self._data / DIRECTORIES[kind], kind)

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

    def begin_sync(self) -> Callable[[], None]:
        """Send what was added on its way; return what waits for the answer, as :meth:`sync`."""
        rounds = self._owned()
        answered = self._requests.start(rounds.sync(rounds.added))
        return answered.result

    def await_turn(self) -> None:
        """See :meth:`tarry.log.engine.SharedLogs.await_turn`."""
        if (left_s := self._turned_s + self._owned().put_s - time.monotonic()) > 0:
            time.sleep(left_s)
        self._turned_s = time.monotonic()

    def wait_for_former(self) -> None:
        """Return when former leases are over.

        Before, the former owner may hand out again what an acknowledgement would settle, and each be right.
        """
        while (left_s := self._lease.begins_in_s) > 0:
            time.sleep(min(left_s, LOOK_WAIT_S))

    def trim(self, kind: LogKind, segment: int) -> None:
        """Note that a segment of a log, and those before it, are needed by nobody.

        The note is part of the next round, and later owners do not get it. Its bytes stay in the store until a base
        takes their place.
        """
        if segment >= self._trimmed.get(kind, 0):
            self._trimmed[kind] = segment + 1
            self._cache.add(Part(kind, segment, TRIMMED, b""), self.add)

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
            self._role.end()
            self._lock.release()

    def stop_by(self, left_s: float) -> None:
        """See :meth:`tarry.log.engine.SharedLogs.stop_by`."""
        self._requests.start(self._abandon(left_s))

    async def _abandon(self, left_s: float) -> None:
        await asyncio.sleep(left_s)
        self._owned().abandon()

    def _owned(self) -> EpochRounds:
        if self._rounds is None:
            raise FatalError(f"the logs of {self._data} were not claimed")
        return self._rounds


class ObjectLog:
    """A log of an :class:`ObjectEngine`."""

    def __init__(
        self, engine: ObjectEngine, cache: CacheDirectory, files: Files, directory: Path, kind: LogKind
    ) -> None:
        self.kind, self.directory = kind, directory
        self._engine, self._cache, self._files = engine, cache, files

    def open(self, segment: int) -> AppendFile:
        path = segment_path(self.directory, segment)
        return _CachedSegment(self._engine, self._cache, self._files.open_append(path), path, self.kind, segment)

    def discard(self, segment: int) -> None:
        # First the part: a base that finds no file has to know why.
        self._cache.add(Part(self.kind, segment, 0, b""), self._engine.add)
        self._files.remove(segment_path(self.directory, segment))
        self._engine.sync()

    def trim(self, segment: int) -> None:
        self._engine.trim(self.kind, segment)
        remove_segment(self._files, segment_path(self.directory, segment))


class _CachedSegment:
    """A segment in the directory, whose writes become parts of rounds. What was written is never cut off."""

    def __init__(
        self, engine: ObjectEngine, cache: CacheDirectory, file: AppendFile, path: Path, kind: LogKind, segment: int
    ) -> None:
        self._cache = cache
        self._engine, self._file, self._path, self._kind, self._segment = engine, file, path, kind, segment
        self._kept = self._opened_with = file.size
        self.close = file.close

    @property
    def size(self) -> int:
        return self._file.size

    def write(self, buffers: Sequence[Buffer]) -> None:
        content = b"".join(buffers)
        if self._kind is LogKind.ACKS:
            self._engine.wait_for_former()
        self._file.write([content])
        self._cache.add(Part(self._kind, self._segment, self._kept, content), self._engine.add)
        self._kept += len(content)

    def sync(self) -> None:
        # What a segment begins with was in rounds, which the first one of this life answers for. An empty one may
        # follow one that was written.
        if self._is_written:
            self._engine.sync()

    def begin_sync(self) -> Callable[[], None]:
        return self._engine.begin_sync() if self._is_written else self.sync

    @property
    def _is_written(self) -> bool:
        return self._kept > self._opened_with or not self._opened_with

    def truncate(self, size: int) -> None:
        if size < self._kept:
            raise CorruptError(
                f"{self._path} at offset {size}: it is not what the log in the store has; it is a cache, and is made "
                "again at the next start"
            )
        self._file.truncate(size)


def _milliseconds(us: Histogram) -> dict[str, float | int | None]:
    summary = us.summary()
    count = summary.pop("count")
    return {"count": count} | {name: value and round(value / 1000, 1) for name, value in summary.items()}


async def _logged(trimming: Coroutine[Any, Any, None]) -> None:
    try:
        await trimming
    except (UnavailableError, CorruptError) as error:
        log.warning("what a base makes superfluous could not be deleted: %s; the next one deletes it", error)
