"""Limits logins with unknown tokens: ten a minute for each peer, and each is logged.

A peer is the address that the connection comes from. Behind a proxy there are many, whom the address that the proxy
adds tells apart. It is believed of proxies that the setting ``http_proxies`` names, and of nobody else: whoever may
write it has as many guesses as it likes, and can use up those of others.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Sequence

from starlette.requests import Request

from tarry.base.addresses import Network
from tarry.base.log_limiter import LogLimiter

log = logging.getLogger(__name__)

GUESSES_MAX = 10
GUESSES_MS = 60_000
PEERS_MAX = 10_000


class Guesses:
    """On the event loop's thread."""

    def __init__(self, proxies: Sequence[Network] = ()) -> None:
        self._proxies = proxies
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
        self._refused.say("a login to the console was refused to %s: its token is not taken", peer)
        self.count(peer, now_ms)
        if self.wait_ms(peer, now_ms):
            self._waits.say("%s was refused %d times, and has to wait before it may guess on", peer, GUESSES_MAX)

    def count(self, peer: str, now_ms: int) -> None:
        """Count a login of a peer, until it is given back; whoever calls this logs it where it is refused."""
        moments = self._failed.setdefault(peer, [])
        moments[:] = [*moments, now_ms][-GUESSES_MAX:]
        self._failed.move_to_end(peer)
        while len(self._failed) > PEERS_MAX:
            self._failed.popitem(last=False)

    def give_back(self, peer: str, counted_ms: int) -> None:
        """Count a login no more that was counted at this time: it was no guess."""
        moments = self._failed.get(peer, [])
        if counted_ms in moments:
            moments.remove(counted_ms)
        if not moments:
            self._failed.pop(peer, None)

    def peer_of(self, request: Request) -> str:
        """Return the address of a request's sender.

        For IPv6 it is a network, because a customer has all addresses of one.
        """
        came_by = [part.strip() for each in request.headers.getlist("x-forwarded-for") for part in each.split(",")]
        came_by.append(request.client.host if request.client is not None else "")
        host = came_by.pop()
        while came_by and self._is_proxy(host):
            host = came_by.pop()
        return _shown(host)

    def _is_proxy(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)


def _shown(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return repr(host[:80])
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))
