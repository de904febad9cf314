"""A cache of bounded size that drops the least recently used: for values that are dear to make again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Values by their keys, up to ``size_max`` and always one; the least recently used goes. Any thread.

    ``size_of`` gives a value's size, the same each time: its bytes, or 1 where values are counted. What a key stands
    for must never change.
    """

    def __init__(self, size_max: int, size_of: Callable[[V], int]) -> None:
        self._size_max = size_max
        self._size_of = size_of
        self._values: OrderedDict[K, V] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Its value, if it is still here; it counts as used."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        """Keep a value; what was used least recently goes where there is no room for all."""
        with self._lock:
            self._drop(key)
            self._values[key] = value
            self._size += self._size_of(value)
            while self._size > self._size_max and len(self._values) > 1:
                self._drop(next(iter(self._values)))

    def drop(self, key: K) -> None:
        """Forget a value that nobody is expected to ask for again."""
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._values.clear()
            self._size = 0

    def _drop(self, key: K) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self._size -= self._size_of(value)
