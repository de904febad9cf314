"""Open calls, counted in all and by peer, each from its first byte."""

from __future__ import annotations

from collections import Counter

from loopgrpc import Call
from tarry.base.errors import OverloadedError

CALLS_MAX = 1_000


class CallLimits:
    """Limit of ``calls_max`` calls at a time, and of half of it for a peer address. On the loop's thread."""

    def __init__(self, calls_max: int) -> None:
        self._calls_max = calls_max
        self._part_max = max(1, calls_max // 2)
        self._hosts: Counter[str] = Counter()

    def begin(self, call: Call) -> None:
        """Count a call until its end.

        Raises:
            OverloadedError: there are too many, or its peer has too many.
        """
        of_peer, in_all = self._hosts[call.host], self._hosts.total()
        if of_peer >= self._part_max:
            raise OverloadedError(
                f"{of_peer} calls of {call.host} are open; allowed: {self._part_max}; try again later"
            )
        if in_all >= self._calls_max:
            raise OverloadedError(f"{in_all} calls are open; allowed: {self._calls_max}; try again later")
        self._hosts[call.host] += 1
        call.on_done(self._end)

    def _end(self, call: Call) -> None:
        self._hosts[call.host] -= 1
        if not self._hosts[call.host]:
            del self._hosts[call.host]
