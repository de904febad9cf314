"""Counts the calls that are open, in all and by peer: each keeps a thread of gRPC's, and most a few of ours.

A call is counted from its first byte, before gRPC waits for its first message; whose it is, pyarrow only says when its
handler runs. So calls that have sent nothing yet are bounded together.
"""

from __future__ import annotations

import threading
from collections import Counter

import pyarrow.flight as fl

from tarry.api.wire import encode_error
from tarry.base.errors import OverloadedError

CALLS_MAX = 1_000
NAME = "calls"
"""Of the middleware, to find a call's own by."""


class CallLimits(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """No more than ``calls_max`` calls at a time; half of it for one peer address, and for those without a message."""

    def __init__(self, calls_max: int) -> None:
        super().__init__()
        self._calls_max = calls_max
        self._part_max = max(1, calls_max // 2)
        self._lock = threading.Lock()
        self._calls = 0
        self._claimed = 0
        self._of_peer: Counter[str] = Counter()

    def start_call(self, info: fl.CallInfo, headers: dict[str, list[str]]) -> Call:
        with self._lock:
            silent = self._calls - self._claimed
            if self._calls >= self._calls_max:
                error = OverloadedError(f"{self._calls} calls are open; allowed: {self._calls_max}; try again later")
            elif silent >= self._part_max:
                text = f"{silent} open calls have sent nothing yet; allowed: {self._part_max}; try again later"
                error = OverloadedError(text)
            else:
                self._calls += 1
                return Call(self)
        raise fl.FlightServerError(str(error), encode_error(error))

    def claim(self, host: str) -> None:
        """A call that was counted is one of ``host``.

        Raises:
            OverloadedError: it has too many.
        """
        with self._lock:
            if self._of_peer[host] >= self._part_max:
                raise OverloadedError(
                    f"{self._of_peer[host]} calls of {host} are open; allowed: {self._part_max}; try again later"
                )
            self._of_peer[host] += 1
            self._claimed += 1

    def release(self, host: str | None) -> None:
        """A call has ended."""
        with self._lock:
            self._calls -= 1
            if host is not None:
                self._claimed -= 1
                self._of_peer[host] -= 1
                if not self._of_peer[host]:
                    del self._of_peer[host]


class Call(fl.ServerMiddleware):  # type: ignore[misc]
    """One call, from its start until gRPC has sent its last answer."""

    def __init__(self, limits: CallLimits) -> None:
        super().__init__()
        self._limits = limits
        self._host: str | None = None

    def claim(self, peer: str) -> None:
        """Its handler runs, for ``peer`` (``ServerCallContext.peer()``).

        Raises:
            OverloadedError: the peer has too many calls open.
        """
        host = peer.rpartition(":")[0]
        self._limits.claim(host)
        self._host = host

    def call_completed(self, exception: BaseException | None) -> None:
        self._limits.release(self._host)
