"""A cache of bounded size that begins anew when it is full.

It is for what is asked for with every call, and cheap to make again. Where that is dear, :mod:`tarry.base.lru_cache`
drops the least recently used alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """A dict of at most ``entries_max`` keys, which :meth:`keep` adds.

    Any thread: a race costs a value that is made again. A dict, and not a class around one, because looking a key up
    must cost no Python call.
    """

    __slots__ = ("_entries_max",)

    def __init__(self, entries_max: int) -> None:
        super().__init__()
        self._entries_max = entries_max

    def keep(self, key: K, value: V) -> V:
        """Keep a value, and return it; forget all others where there is no room for one more."""
        if len(self) >= self._entries_max and key not in self:
            self.clear()
        self[key] = value
        return value
