"""Limits logins with unknown tokens: ten a minute for each peer, and each is logged.

Behind a proxy on this machine there are many peers; the address that the proxy adds tells them apart. Anybody on this
machine can write that header, too, but needs no login to do harm.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import OrderedDict

from starlette.requests import Request

from tarry.base.exposure import is_loopback
from tarry.base.log_limiter import LogLimiter

log = logging.getLogger(__name__)

GUESSES_MAX = 10
GUESSES_MS = 60_000
PEERS_MAX = 10_000


class Guesses:
    """On the event loop's thread."""

    def __init__(self) -> None:
        self._failed: OrderedDict[str, list[int]] = OrderedDict()
        """The times of each peer's last guesses, in ms."""
        # Strangers can cause thousands of lines a second.
        self._refused, self._waits = LogLimiter(log, logging.WARNING), LogLimiter(log, logging.WARNING)

    def wait_ms(self, peer: str, now_ms: int) -> int:
        """Return how long a peer has to wait before it may show a token; 0: not at all."""
        moments = [at for at in self._failed.get(peer, ()) if 0 <= now_ms - at < GUESSES_MS]
        return 0 if len(moments) < GUESSES_MAX else moments[-GUESSES_MAX] + GUESSES_MS - now_ms

    def note(self, peer: str, now_ms: int) -> None:
        """Note that a peer has shown a token that lets nobody in."""
        moments = self._failed.setdefault(peer, [])
        moments[:] = [*moments, now_ms][-GUESSES_MAX:]
        self._failed.move_to_end(peer)
        while len(self._failed) > PEERS_MAX:
            self._failed.popitem(last=False)
        self._refused.say("a login to the console was refused to %s: its token is not taken", peer)
        if self.wait_ms(peer, now_ms):
            self._waits.say("%s has shown %d wrong tokens, and has to wait before it may guess on", peer, GUESSES_MAX)


def peer_of(request: Request) -> str:
    """Return the address of a request's sender.

    For IPv6 it is a network, because a customer has all addresses of one.
    """
    host = request.client.host if request.client is not None else ""
    if is_loopback(host):
        host = [host, *request.headers.getlist("x-forwarded-for")][-1].rpartition(",")[2].strip()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return repr(host[:80])
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))
