"""Header blocks that were parsed before: a client sends the same one again and again.

The parser calls back for each header, which takes as long as all that is done for a small request. So what a block of
headers meant is remembered, by its bytes, and a request that comes whole in one piece with such a block is not parsed
again: its request line is simple enough to be taken apart here. Anything else goes to the parser.

A block's meaning does not depend on what comes before it, for the methods that are taken here: its headers, how long
the body is, and that the connection stays.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tarry.base.bounded_cache import BoundedCache
from tarry.fronts.http.exchange import Headers

BLOCK_BYTES_MAX = 2048
"""Longer ones are not remembered."""

# Targets of characters that mean the same in every parser; all others are the parser's to judge.
_LINE = re.compile(rb"(GET|PUT|DELETE|POST) (/[-A-Za-z0-9_/,.=&?]{0,4096}) HTTP/1\.1\r\n")
_METHODS = {name.encode(): name for name in ("GET", "PUT", "DELETE", "POST")}
_END = b"\r\n\r\n"


class Head(NamedTuple):
    """A request head, decoded."""

    method: str
    target: bytes
    headers: Headers
    """The same list for all requests with this block."""
    body_at: int


class KnownHeads:
    """Heads of requests that the connections of a server know. On the event loop's thread.

    ``blocks_max``: the number of blocks that are remembered; 0 turns this off, and every request is parsed.

    A match tells its sender that somebody has sent the whole block before, its token included. So nobody can find a
    token piece by piece this way.
    """

    def __init__(self, blocks_max: int) -> None:
        self.is_on = blocks_max > 0
        self._known: BoundedCache[bytes, tuple[Headers, int]] = BoundedCache(blocks_max)

    def find(self, data: bytes) -> Head | None:
        """Return the head of a request that is exactly these bytes; None: it needs the parser."""
        line = _LINE.match(data)
        if line is None:
            return None
        at = line.end()
        end = data.find(_END, at - 2)
        known = self._known.get(data[at:end])
        if known is None or end < 0 or len(data) - end - len(_END) != known[1]:
            return None
        return Head(_METHODS[line[1]], line[2], known[0], end + len(_END))

    def learn(self, data: bytes, headers: Headers, body_bytes: int) -> None:
        """Remember the block of a request that is exactly these bytes, as the parser has understood it."""
        line = _LINE.match(data)
        if line is None:
            return
        at = line.end()
        end = data.find(_END, at - 2)
        # Where the parser has found the head's end elsewhere, nothing is remembered.
        if not 0 <= end - at <= BLOCK_BYTES_MAX or len(data) - end - len(_END) != body_bytes:
            return
        self._known.keep(data[at:end], (headers, body_bytes))
