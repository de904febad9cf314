"""Commits of the intake whose rounds are under way: each is finished when it is durable, in order.

Where a round takes long, as in an object store, the writer begins the next one meanwhile.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Commit(NamedTuple, Generic[T]):
    commit: T
    until_durable: Callable[[], None]
    size: int


class CommitsUnderWay(Generic[T]):
    """Calls ``finish(commit)`` for what is durable, in order, in a thread of its own.

    The first error is fatal: ``on_fatal(error, commits)`` is told, with all that were not finished, and nothing is
    taken any more. ``bytes_max``: so much may be under way, or one larger commit.
    """

    def __init__(
        self,
        name: str,
        finish: Callable[[T], None],
        on_fatal: Callable[[BaseException, list[T]], None],
        *,
        bytes_max: int,
    ) -> None:
        self._finish = finish
        self._on_fatal = on_fatal
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._commits: deque[_Commit[T]] = deque()
        self._bytes = 0
        self._error: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, commit: T, until_durable: Callable[[], None], size: int) -> None:
        """Have a commit finished once ``until_durable()`` has returned. Waits while too much is under way.

        Raises:
            BaseException: the error of an earlier one. This one is the caller's then.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._error or not self._bytes or self._bytes + size <= self._bytes_max)
            self._check()
            self._commits.append(_Commit(commit, until_durable, size))
            self._bytes += size
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until all are finished. Raises the error of one."""
        with self._changed:
            self._changed.wait_for(lambda: self._error or not self._commits)
            self._check()

    def close(self) -> None:
        """Finish all, unless there is an error; nothing may be put any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._commits or self._closed)
                if not self._commits:
                    return
                first = self._commits[0]
            try:
                first.until_durable()
                self._finish(first.commit)
            except BaseException as error:  # noqa: BLE001 - whatever it is, nothing behind it may be answered
                self._fail(error)
                return
            with self._changed:
                # Not before: who drains reads what this one has published.
                self._commits.popleft()
                self._bytes -= first.size
                self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            left = [each.commit for each in self._commits]
            self._commits.clear()
            self._changed.notify_all()
        self._on_fatal(error, left)
