"""Open calls, counted in all and by peer: each keeps a thread of gRPC's, and most a few of ours.

A call is counted from its first byte, before gRPC waits for its first message; whose it is, pyarrow only says when its
handler runs. So streams that have sent nothing yet are bounded together, and where they stay so, the connections are
ended that have nothing else (see ``guard``).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from urllib.parse import unquote

import pyarrow.flight as fl

from tarry.api.wire import encode_error
from tarry.base.errors import OverloadedError
from tarry.fronts.kit.principal import Principal

CALLS_MAX = 1_000
NAME = "calls"
"""Of the middleware, to find a call's own by."""
_STREAMS = (fl.FlightMethod.DO_PUT, fl.FlightMethod.DO_EXCHANGE)
"""Calls whose handlers begin after a first message that the client may keep back."""


class CallLimits(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Limit of ``calls_max`` calls at a time; half for a peer address, and for calls without a message."""

    def __init__(self, calls_max: int) -> None:
        super().__init__()
        self._calls_max = calls_max
        self._part_max = max(1, calls_max // 2)
        self._lock = threading.Lock()
        self._calls = 0
        self._silent = 0
        self._crowded_since_s: float | None = None
        self._hosts: Counter[str] = Counter()
        self._peers: Counter[str] = Counter()

    def start_call(self, info: fl.CallInfo, headers: dict[str, list[str]]) -> OpenCall:
        is_stream = info.method in _STREAMS
        with self._lock:
            if self._calls >= self._calls_max:
                error = OverloadedError(f"{self._calls} calls are open; allowed: {self._calls_max}; try again later")
            elif is_stream and self._silent >= self._part_max:
                text = f"{self._silent} open streams have sent nothing yet; allowed: {self._part_max}; try again later"
                error = OverloadedError(text)
            else:
                self._calls += 1
                self._add_silent(is_stream)
                return OpenCall(self, is_silent=is_stream)
        raise fl.FlightServerError(str(error), encode_error(error))

    def _add_silent(self, number: int) -> None:
        self._silent += number
        if self._silent < self._part_max:
            self._crowded_since_s = None
        elif self._crowded_since_s is None:
            self._crowded_since_s = time.monotonic()

    def crowded_s(self, now_s: float) -> float:
        """For how long (until ``now_s``, of the monotonic clock) there have been too many silent streams."""
        with self._lock:
            return 0.0 if self._crowded_since_s is None else now_s - self._crowded_since_s

    def peers(self) -> set[str]:
        """Return the peers with a call whose handler runs, or whose answer is being sent."""
        with self._lock:
            return set(self._peers)

    def claim(self, call: OpenCall, peer: str) -> None:
        """Count a call, whose handler begins, for its ``peer`` (``ServerCallContext.peer()``).

        Raises:
            OverloadedError: that address has too many.
        """
        host = _host(peer)
        with self._lock:
            if self._hosts[host] >= self._part_max:
                raise OverloadedError(
                    f"{self._hosts[host]} calls of {host} are open; allowed: {self._part_max}; try again later"
                )
            self._hosts[host] += 1
            self._peers[peer] += 1
            self._add_silent(-call.is_silent)
            call.is_silent, call.peer = False, peer

    def release(self, call: OpenCall) -> None:
        """Release a call that has ended."""
        with self._lock:
            self._calls -= 1
            self._add_silent(-call.is_silent)
            if call.peer is not None:
                _subtract(self._hosts, _host(call.peer))
                _subtract(self._peers, call.peer)


class OpenCall(fl.ServerMiddleware):  # type: ignore[misc]
    """One call, from its start until gRPC has sent its last answer."""

    def __init__(self, limits: CallLimits, *, is_silent: bool) -> None:
        super().__init__()
        self._limits = limits
        self.is_silent = is_silent
        self.peer: str | None = None

    def claim(self, peer: str) -> None:
        """See :meth:`CallLimits.claim`."""
        self._limits.claim(self, peer)

    def call_completed(self, exception: BaseException | None) -> None:
        self._limits.release(self)


def host_of(peer: str) -> str:
    """Return the address alone of ``ServerCallContext.peer()``, as other fronts know it."""
    return unquote(_host(peer)).partition(":")[2].strip("[]")


def _host(peer: str) -> str:
    return peer.rpartition(":")[0]


def _subtract(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


def principal_of(context: fl.ServerCallContext) -> Principal | None:
    """Return the identity that a call's connection has proved; None if it has proved none.

    Of a certificate gRPC gives one name, without its kind: the first alternative one, or else the common name.
    """
    identity = context.peer_identity()
    return Principal("certificate", identity.decode(errors="replace")) if identity else None
