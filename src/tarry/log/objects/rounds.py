"""The rounds of one epoch: what is on its way, and what may be answered.

Everything here runs on one event loop, but :meth:`EpochRounds.add`. A round that was begun is never taken back: it is
in the log, or will be found not to be there by a later owner.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from tarry.base.clock import Clock
from tarry.base.errors import FatalError, OwnershipLostError
from tarry.log.engine import Part
from tarry.log.frame import LogKind
from tarry.log.objects.content import Manifest, StoredRound, digest_of, encode_round, numbered, round_key
from tarry.log.objects.history import WINDOW, Claim, RoundHistory
from tarry.log.objects.lease import OwnerLease
from tarry.log.objects.round_times import RoundTimes
from tarry.log.objects.store import ObjectStore, asked, created
from tarry.log.objects.successor import name_of

DEPTH = 8
"""The most PUTs under way. What is written meanwhile gathers in the round that comes next."""
LOOKS = 4
"""The most looks for the next epoch under way."""
ROUND_BYTES = 8 << 20
"""About the size from which a round begins unasked; and the largest, but for one larger part."""


PUT_S_MAX = 0.25
"""The most that a PUT counts for: after a store was away, who writes does not wait longer for a turn."""


class _Begun(NamedTuple):
    """A round that is not answered yet. ``taken``: the number of parts in it and before it."""

    begun_s: float
    clock_ms: int
    taken: int


class EpochRounds:
    """Rounds of one owner.

    ``history``: what lies before them; it becomes part of this. ``lease``: they extend it. ``gap_s``: the shortest
    time between two that somebody waits for.
    """

    def __init__(
        self,
        store: ObjectStore,
        claim: Claim,
        history: RoundHistory,
        clock: Clock,
        depth: int = DEPTH,
        lease: OwnerLease | None = None,
        gap_s: float = 0.0,
    ) -> None:
        self._store, self._claim, self._history, self._clock = store, claim, history, clock
        self._lock = threading.Lock()
        self._open: deque[Part] = deque()
        self._open_bytes = self._added = self._taken = self._parts_answered = 0
        self._slots, self._looks = asyncio.Semaphore(depth), asyncio.Semaphore(LOOKS)
        self._lease, self._gap_s = lease or OwnerLease(), gap_s
        self.times = RoundTimes(self._lease.now_s)
        self._next = 0
        self._begun: dict[int, _Begun] = {}  # by number, in order
        self._begun_s = self._put_s = 0.0
        self._landed: set[int] = set()  # rounds whose PUT was answered, behind one whose was not
        self._durable = 0  # so many were, without a gap
        self._changed = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order of their beginning
        self.answered = 0
        """So many rounds are certain to be in the log that every later owner reads."""
        self.lost: FatalError | None = None
        """Reason for which nothing is answered any more."""

    @property
    def put_s(self) -> float:
        """Seconds that PUTs take at present. Any thread."""
        return self._put_s

    def add(self, part: Part) -> bool:
        """Put a part into the round that comes next. From any thread.

        True: that round is large enough to be begun (:meth:`flush`).
        """
        with self._lock:
            before = self._open_bytes
            self._open.append(part)
            self._added += 1
            self._open_bytes += len(part.content)
            return before < ROUND_BYTES <= self._open_bytes

    async def first(self) -> None:
        """Write the epoch's first round, which names the history before it; wait until it is answered."""
        await self._slots.acquire()
        self._begin([])
        await self.reach(self._next)

    @property
    def added(self) -> int:
        """Number of the parts that were added. Any thread."""
        return self._added

    async def sync(self, added: int | None = None) -> None:
        """Wait until all that was added before this call is answered, or the first ``added`` parts.

        Raises:
            OwnershipLostError: a later epoch was claimed, or another writes in this one; so it is for ever.
        """
        added = self._added if added is None else added
        while self._taken < added:
            await self.flush()
        self._check()
        # Not those that others have begun meanwhile: their answers come later.
        while self._parts_answered < added:
            await self._changed.wait()
            self._check()

    async def renew(self) -> None:
        """Write a round, whether there is anything to write or not; wait until it is answered.

        Raises OwnershipLostError.
        """
        await self._begin_any()
        await self.reach(self._next)

    async def mark(self) -> Manifest:
        """Begin rounds with all that was added, and return the place behind them, as a base without files."""
        await self._begin_any()
        while self._open and self.lost is None:
            await self._begin_any()
        self._check()
        history = self._history
        return Manifest(self._claim.epoch, self._next, history.clock_ms, history.digest, dict(history.trimmed))

    async def reach(self, position: int) -> None:
        """Wait until all rounds before a position (:meth:`mark`) are answered. Raises OwnershipLostError."""
        while self.answered < position:
            self._check()
            await self._changed.wait()

    async def confirm(self) -> None:
        """Wait until a look that begins now finds no later owner. Raises OwnershipLostError."""
        if await asked(lambda: self._store.exists(numbered("epoch", self._claim.epoch + 1))):
            await self._give_way()
        self._check()

    async def beat(self) -> None:
        """Write a round each half of a lease in which none began, until the ownership is lost."""
        while self.lost is None:
            pause_s = self._begun_s + self._lease.lease_s / 2 - self._lease.now_s()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
                continue
            await self._begin_any()

    async def hand_over(self, left: Part) -> None:
        """Write the last round; wait until it is answered. Raises OwnershipLostError."""
        self.add(left)
        await self.renew()
        await self.sync()

    async def flush(self) -> None:
        """Send what was added on its way, once there is room for another PUT. Raises OwnershipLostError."""
        self._check()
        if not self._open:
            return  # it is in a round that was begun
        await self._acquire()
        while self._open and (left_s := self._begun_s + self._gap_s - self._lease.now_s()) > 0:
            await asyncio.sleep(left_s)
        if (parts := self._take()) and self.lost is None:
            self._begin(parts)
        else:
            self._slots.release()  # to the next who waits
        self._check()

    async def look_around(self) -> None:
        """Look whether the epoch is still this owner's. Raises UnavailableError: it cannot be seen."""
        epoch, there = self._claim.epoch, await self._store.get(numbered("epoch", self._claim.epoch))
        if there != self._claim.content:
            what = "is gone" if there is None else "is another's"
            self._lose(OwnershipLostError(f"epoch {epoch} has ended: {numbered('epoch', epoch)} {what}"))
        elif await self._store.exists(numbered("epoch", epoch + 1)):
            await self._give_way()

    def abandon(self) -> None:
        """End what is under way, as the end of the process would. A PUT may arrive all the same."""
        what = "what was not answered may be in the log or not"
        self._lose(FatalError(f"the store gave no answer: epoch {self._claim.epoch} was given up; {what}"))

    async def _acquire(self) -> None:
        """Take a slot for a PUT, within the window of rounds that are not answered."""
        await self._slots.acquire()
        while self._next - self.answered >= WINDOW and self.lost is None:
            await self._changed.wait()

    async def _begin_any(self) -> None:
        await self._acquire()
        if self.lost is None:
            self._begin(self._take())
        else:
            self._slots.release()

    def _begin(self, parts: Sequence[Part]) -> None:
        """Begin a round; the caller has taken a slot for its PUT."""
        number, history, claim = self._next, self._history, self._claim
        self._next += 1
        self._begun_s = self._lease.now_s()
        clock_ms = max(history.clock_ms, self._clock.now_ms())
        self._begun[number] = _Begun(self._begun_s, clock_ms, self._taken)
        each = StoredRound(claim.epoch, number, claim.nonce, clock_ms, history.digest, gathered(parts))
        content = encode_round(each)
        history.add(each, digest_of(content))
        self._start(self._put(number, content))

    async def _put(self, number: int, content: bytes) -> None:
        begun_s = self._lease.now_s()
        key = round_key(self._claim.epoch, number)
        try:
            there = await created(self._store, key, content)
        finally:
            self._slots.release()
            if self._open_bytes >= ROUND_BYTES and self.lost is None:
                self._start(self.flush())
        if there != content:
            self._lose(OwnershipLostError(f"{key} is another's: two copies of one machine write in this epoch"))
            return
        self._put_s += (min(self._lease.now_s() - begun_s, PUT_S_MAX) - self._put_s) / 8
        self._landed.add(number)
        if number == self._durable:  # else whoever fills the gap before it goes on for it
            while self._durable in self._landed:
                self._landed.remove(self._durable)
                self._durable += 1
            await self._look(self._durable)

    async def _look(self, needed: int) -> None:
        """Look for the next epoch, for all rounds whose PUTs were answered before the look begins."""

        async def look() -> tuple[int, bool]:
            durable = self._durable
            return durable, await self._store.exists(numbered("epoch", self._claim.epoch + 1))

        async with self._looks:
            if self.answered >= needed:
                return  # by a look that began meanwhile
            durable, found = await asked(look)
        if found:
            await self._give_way()
        elif self.lost is None:
            for number in range(self.answered, durable):
                begun_s, clock_ms, self._parts_answered = self._begun.pop(number)
                self._lease.extend(begun_s, clock_ms)
                self.times.note(begun_s)
            self.answered = max(self.answered, durable)
            self._wake()

    def _take(self) -> list[Part]:
        parts: list[Part] = []
        size = 0
        with self._lock:
            while self._open and (not parts or size + len(self._open[0].content) <= ROUND_BYTES):
                parts.append(self._open.popleft())
                size += len(parts[-1].content)
            self._open_bytes -= size
            self._taken += len(parts)
        return parts

    async def _give_way(self) -> None:
        """Stop, for the next epoch was claimed. Nothing is handed out from now on."""
        self._lease.end()
        following = self._claim.epoch + 1
        who = await name_of(self._store, following)
        self._lose(OwnershipLostError(f"epoch {self._claim.epoch} has ended: {who} has claimed {following}"))

    def _check(self) -> None:
        if self.lost is not None:
            raise self.lost

    def _lose(self, error: FatalError) -> None:
        self.lost = self.lost or error
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._lose(FatalError(f"a round of epoch {self._claim.epoch} failed: {error}"))


def gathered(parts: Sequence[Part]) -> list[Part]:
    """Return the parts in the order of their logs, those that go on from one another as one."""
    runs: list[list[Part]] = []
    for part in sorted(parts, key=lambda each: each.kind):
        last = runs[-1][-1] if runs else None
        goes_on = last and last.kind == part.kind and last.content and part.content and last.end == part[1:3]
        if goes_on and part.kind is not LogKind.FILES:
            runs[-1].append(part)
        else:
            runs.append([part])
    return [run[0]._replace(content=b"".join(each.content for each in run)) for run in runs]
