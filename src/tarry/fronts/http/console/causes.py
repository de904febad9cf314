"""Dead letters of a group by their cause, and acting on all of one cause together, with progress.

Reasons of one kind differ in numbers and ids. So they are told apart by their first line, with a sign in the place of
these.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tarry.base.errors import TarryError
from tarry.fronts.http.services import HttpServices
from tarry.message import reserved

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Longest time of looking through dead letters for a page."""
PAGE_BYTES, PAGE_ROWS_MIN, PAGE_ROWS_MAX = 8 << 20, 20, 1000
"""About how much is read at a time, bodies included."""
REASON_CHARS = 160
CAUSES_MAX = 50
JOBS_MAX = 64
"""Groups of which the last action is remembered."""
Letters = list[dict[str, Any]]
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8}[0-9a-fA-F-]*\b|\d+(?:[.,:]\d+)*")


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of dead letters by its name, and the kind of reason that consumers gave; empty: none."""

    cause: str
    reason: str

    @classmethod
    def of(cls, row: dict[str, Any]) -> Cause:
        """Return that of a dead letter (:data:`tarry.api.row_schemas.DEAD_LETTER`)."""
        properties = dict(row["properties"] or [])
        given = properties.get(reserved.DEAD_REASON) or ""
        return cls(properties.get(reserved.DEAD_CAUSE) or "", kind_of(given))


def kind_of(reason: str) -> str:
    """Return the first line of a reason, with "…" for what differs from message to message."""
    line = next((each.strip() for each in reason.splitlines() if each.strip()), "")
    return _VARYING.sub("…", line)[:REASON_CHARS]


@dataclass(slots=True)
class CauseCount:
    """The number of dead letters with a cause, an example, and the times of the first and last."""

    cause: Cause
    count: int = 0
    example: str = ""
    first_ms: int | None = None
    last_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Causes:
    """Causes by their counts, up to the offset ``until``; ``is_whole``: there was nothing behind it."""

    counts: list[CauseCount]
    until: int
    is_whole: bool


async def pages(services: HttpServices, topic: str, group: str, after: int | None) -> AsyncIterator[Letters]:
    """Yield the dead letters behind an offset, as many at a time as are not too large.

    Raises:
        TarryError: the caller may not see them, or they cannot be read.
    """
    limit = PAGE_ROWS_MIN
    while True:
        found = await services.dead_letters(topic, group, limit=limit, after=after)
        if not found.num_rows:
            return
        after = int(found.column("offset")[-1].as_py())
        bytes_each = max(1, found.nbytes // found.num_rows)
        yield found.to_pylist()
        limit = max(PAGE_ROWS_MIN, min(PAGE_ROWS_MAX, PAGE_BYTES // bytes_each))


async def count_causes(services: HttpServices, topic: str, group: str) -> Causes:
    """Count the dead letters of a group by cause, for so long as a page may take."""
    until_s, found, last, is_whole = time.monotonic() + LOOK_S, dict[Cause, CauseCount](), -1, True
    async for rows in pages(services, topic, group, None):
        for row in rows:
            cause = Cause.of(row)
            entry = found.setdefault(cause, CauseCount(cause))
            dead = dict(row["properties"] or [])
            at = dead.get(reserved.DEAD_AT_MS, "")
            at_ms = int(at) if at.isascii() and at.isdigit() else None
            entry.count += 1
            entry.example = entry.example or dead.get(reserved.DEAD_REASON) or ""
            entry.first_ms = entry.first_ms if entry.first_ms is not None else at_ms
            entry.last_ms = at_ms if at_ms is not None else entry.last_ms
        last = rows[-1]["offset"]
        if time.monotonic() > until_s:
            is_whole = False
            break
    counts = sorted(found.values(), key=lambda entry: -entry.count)[:CAUSES_MAX]
    return Causes(counts, last, is_whole)


@dataclass(slots=True, eq=False)
class CauseJob:
    """An action on all dead letters of a cause, as it goes along."""

    action: str
    """respawn or purge."""
    topic: str
    group: str
    cause: Cause
    until: int
    """The last offset that it is about: what came later was not seen by who began it."""
    total: int
    done: int = 0
    looked_at: int = 0
    error: str = ""
    is_over: bool = False


@dataclass(slots=True, eq=False)
class CauseJobs:
    """The last action of each group, one at a time. On the event loop's thread.

    A restart of the broker ends them.
    """

    _jobs: dict[tuple[str, str], CauseJob] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def find(self, topic: str, group: str) -> CauseJob | None:
        """Return the last one."""
        return self._jobs.get((topic, group))

    def begin(self, services: HttpServices, job: CauseJob) -> bool:
        """Begin it, with the rights of who asks; False: another is under way."""
        key = (job.topic, job.group)
        former = self._jobs.pop(key, None)
        if former is not None and not former.is_over:
            self._jobs[key] = former
            return False
        over = [key for key, each in self._jobs.items() if each.is_over]
        for each in over[: max(0, len(self._jobs) + 1 - JOBS_MAX)]:
            del self._jobs[each]
        self._jobs[key] = job
        task = asyncio.ensure_future(_carry_out(services, job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def close(self) -> None:
        """Stop what is under way; what was done stays done."""
        for task in list(self._tasks):
            task.cancel()


async def _carry_out(services: HttpServices, job: CauseJob) -> None:
    try:
        async for rows in pages(services, job.topic, job.group, None):
            here = [row for row in rows if row["offset"] <= job.until]
            job.looked_at += len(here)
            offsets = [row["offset"] for row in here if Cause.of(row) == job.cause]
            if offsets:
                act = services.respawn if job.action == "respawn" else services.purge
                job.done += await act(job.topic, job.group, offsets=offsets)
            if len(here) < len(rows):
                return
    except TarryError as error:
        job.error = str(error)
    except Exception:
        job.error = "it ended for a fault, which the broker's log tells"
        log.exception("dead letters of group %r of topic %r", job.group, job.topic)
    finally:
        job.is_over = True
