"""Functions to be called after each change of something."""

from __future__ import annotations

import threading
from collections.abc import Callable

OnChange = Callable[[], None]


class Listeners:
    """The listeners of one thing. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: tuple[OnChange, ...] = ()

    def add(self, on_change: OnChange) -> Callable[[], None]:
        """Have ``on_change`` called by each :meth:`tell`, in its thread; return a function that ends this.

        It must be quick, and not raise.
        """

        def stop() -> None:
            with self._lock:
                self._all = tuple(each for each in self._all if each is not on_change)

        with self._lock:
            self._all = (*self._all, on_change)
        return stop

    def tell(self) -> None:
        """Call them all."""
        # As they are now: one may end itself, or add another, while it is called.
        for on_change in self._all:
            on_change()
