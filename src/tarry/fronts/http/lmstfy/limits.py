"""Limits a token's reads and publishes per interval, which begins with its first request.

A request that did not end well (no job, a refusal) does not count, as with lmstfy; one that was refused for the limit
does.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tarry.api.access import AccessToken


@dataclass(slots=True)
class _Window:
    until_s: float
    count: int = 0


class TokenLimits:
    """On the event loop's thread. Counts are of this process, and begin anew with it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._windows: dict[tuple[str, bool], _Window] = {}

    def take(self, token: AccessToken, *, reads: bool) -> bool:
        """Count a request; whether it may go on."""
        most = token.reads_max if reads else token.writes_max
        if not most:
            return True
        now_s, key = self._loop.time(), (token.id, reads)
        window = self._windows.get(key)
        if window is None or window.until_s <= now_s:
            window = self._windows[key] = _Window(now_s + token.interval_ms / 1000)
        window.count += 1
        return window.count <= most

    def give_back(self, token: AccessToken, *, reads: bool) -> None:
        """Uncount a request that came to nothing."""
        window = self._windows.get((token.id, reads))
        if window is not None:
            window.count -= 1
