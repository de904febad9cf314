"""What was read last, kept up to some size: for who comes back to it soon, where reading it again is dear."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by their keys, the least recently used dropped first, up to ``size_max`` and always one. Any thread.

    ``size_of`` gives a value's size, the same each time: its bytes, or 1 where values are counted. What a key stands
    for must never change.
    """

    def __init__(self, size_max: int, size_of: Callable[[V], int]) -> None:
        self._size_max = size_max
        self._size_of = size_of
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Its value, if it is kept."""
        with self._lock:
            value = self._kept.get(key)
            if value is not None:
                self._kept.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        """It was read."""
        with self._lock:
            self._drop(key)
            self._kept[key] = value
            self._size += self._size_of(value)
            while self._size > self._size_max and len(self._kept) > 1:
                self._drop(next(iter(self._kept)))

    def drop(self, key: K) -> None:
        """Nobody is expected to come back to it."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: K) -> None:
        value = self._kept.pop(key, None)
        if value is not None:
            self._size -= self._size_of(value)
