"""Requests that wait for jobs of a queue, without a thread or a task.

Requests of one identity for the same queue, with leases of the same length, wait as one: a poll costs nearly the same
for one message as for many, and in a steady stream each of them would poll for the message that has just become due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from loopgrpc import UnreadBytes
from tarry.api.accounts import QuotaAccount
from tarry.base.errors import TarryError
from tarry.fronts.http.exchange import HttpRequest
from tarry.fronts.http.lmstfy.jobs import LmstfyJob
from tarry.fronts.kit.last_look import holds_back
from tarry.fronts.kit.receiving import Received, ReceiveQueue, Waiter

ROWS_MAX = 1000
"""Messages that are taken at once for all waiting requests of a queue."""

OnJobs = Callable[[list[LmstfyJob] | TarryError], None]
"""Called with the jobs that there are, maybe none; on the loop's thread."""


@dataclass(frozen=True, slots=True)
class JobReceive:
    """The parts that requests for jobs of one queue share."""

    queue: ReceiveQueue
    names: tuple[str, str]
    """Namespace and queue."""
    count: int
    lease_ms: int
    timeout_s: int


JobsOf = Callable[[JobReceive, pa.RecordBatch], list[LmstfyJob]]
"""The messages of a batch as jobs in a consumer's hands."""


@dataclass(slots=True, eq=False)
class _Wait:
    count: int
    host: str
    answer: OnJobs
    timer: asyncio.TimerHandle


class Waiting:
    """All that wait. On the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, jobs_of: JobsOf, unread: UnreadBytes) -> None:
        self._loop = loop
        self._jobs_of = jobs_of
        self._unread = unread
        self._lines: dict[tuple[ReceiveQueue, int, QuotaAccount | None], _Line] = {}

    def add(
        self, request: HttpRequest, receive: JobReceive, account: QuotaAccount | None, wait_s: float, answer: OnJobs
    ) -> None:
        """Wait for jobs, so long at most; ``answer`` is called once, with none when the client goes first.

        ``account``: the use of the caller's identity.
        """
        key = receive.queue, receive.lease_ms, account
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(self._loop, receive, account, self._jobs_of, self._on_empty, self._unread)
        line.add(request, receive, wait_s, answer)

    def _on_empty(self, line: _Line) -> None:
        key = line.receive.queue, line.receive.lease_ms, line.account
        if self._lines.get(key) is line:  # it may have a successor already
            del self._lines[key]


class _Line:
    """Requests that wait as one: first come, first served, except clients with too many unread bytes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        receive: JobReceive,
        account: QuotaAccount | None,
        jobs_of: JobsOf,
        on_empty: Callable[[_Line], None],
        unread: UnreadBytes,
    ) -> None:
        self._loop = loop
        self.receive = receive
        """The parts that all requests share; its count is that of one of them."""
        self.account = account
        self._jobs_of = jobs_of
        self._on_empty = on_empty
        self._unread = unread
        self._waits: dict[_Wait, None] = {}
        self._served: list[_Wait] | None = None
        """The requests for which the queue was asked last; None: all."""
        self._wanted = 0
        """Jobs that all requests want together."""
        self._waiter: Waiter | None = None

    def add(self, request: HttpRequest, receive: JobReceive, wait_s: float, answer: OnJobs) -> None:
        def leave() -> None:
            if wait in self._waits:
                self._remove(wait)
                self._look()
                answer([])

        wait = _Wait(receive.count, request.host, answer, self._loop.call_later(wait_s, leave))
        self._waits[wait] = None
        self._wanted += receive.count
        request.on_disconnect(leave)
        self._look()

    def _remove(self, wait: _Wait) -> None:
        del self._waits[wait]
        self._wanted -= wait.count
        wait.timer.cancel()

    def _look(self) -> None:
        """Wait for as many messages as are wanted now."""
        queue = self.receive.queue
        if not self._waits:
            if self._waiter is not None:
                queue.remove(self._waiter)
                self._waiter = None
            self._on_empty(self)
        elif self._waiter is not None:
            self._waiter.rows_max = min(self._wanted, ROWS_MAX)
        else:
            lease_ms = self.receive.lease_ms
            subscription = queue.group.subscribe(prefetch=ROWS_MAX, lease_ms=lease_ms, account=self.account)
            self._waiter = Waiter(subscription, min(self._wanted, ROWS_MAX), self._on_received, room=self)
            queue.add(self._waiter)

    @property
    def is_free(self) -> bool:
        """Return whether there is room; see :class:`tarry.fronts.kit.receiving.HasRoom`.

        One look gives little more than one answer may have, however many wait: it is for those who have room before it.
        """
        self._served, wanted = None, self._wanted
        if self._unread.held:
            self._served = [wait for wait in self._waits if self._unread.refusal(wait.host) is None]
            wanted = sum(wait.count for wait in self._served)
        if self._waiter is not None and wanted:
            self._waiter.rows_max = min(wanted, ROWS_MAX)
        return bool(wanted)

    def hold(self, size: int) -> None:
        """Nothing: the answers are written at once, and counted by their connections."""

    def _on_received(self, received: Received) -> None:
        self._waiter = None
        if received is None or isinstance(received, TarryError):
            for wait in list(self._waits):
                self._remove(wait)
                wait.answer([] if received is None else received)
        elif not holds_back(self.receive.queue.group, received):  # else all of them wait on
            self._share_out(self._jobs_of(self.receive, received))
        # Not from here: the queue is in the midst of serving.
        self._loop.call_soon(self._look)

    def _share_out(self, jobs: list[LmstfyJob]) -> None:
        at = 0
        for wait in list(self._waits if self._served is None else self._served):
            if at >= len(jobs):
                break
            self._remove(wait)
            wait.answer(jobs[at : at + wait.count])
            at += wait.count
