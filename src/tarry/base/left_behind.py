"""Threads that a stop has left at requests which nobody answers: the end of the process must not wait for them."""

from __future__ import annotations

import threading

_left = threading.Event()


def leave() -> None:
    """Note that there are such threads. Nothing rests on what they bring."""
    _left.set()


def are_left() -> bool:
    """Return whether there are, or were."""
    return _left.is_set()
