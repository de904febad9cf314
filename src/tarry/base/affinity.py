"""Threads that pass small batches to each other run on one core.

The interpreter runs one thread at a time. A message passes through several (read, fire, write, settle), and each
hand-over to a thread that sleeps on another core costs an interrupt there, a cold cache, and time in which nobody runs:
measured, a third of the processor time of a steady stream. So those threads share a core, while threads that work in
bulk, mostly in C++ without the interpreter, keep all cores.

Does nothing until :func:`share_core` is called (by ``tarry serve``), and nothing where the system has no such call.
"""

from __future__ import annotations

import os
import threading

_everywhere: set[int] = set()
_shared: set[int] = set()
_state = threading.local()


def share_core() -> int | None:
    """From now on :func:`together` moves threads to one core; which one. None where there is only one, or no way."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        return None
    core = allowed[-1]  # the first has the most to do for others; several brokers of one machine: give each its cores
    _everywhere.update(allowed)
    _shared.add(core)
    return core


def together() -> None:
    """The calling thread passes small batches on: to the shared core."""
    _move(_shared)


def apart() -> None:
    """The calling thread works in bulk: on any core."""
    _move(_everywhere)


def _move(cores: set[int]) -> None:
    if cores and getattr(_state, "cores", None) is not cores:
        _state.cores = cores
        try:
            os.sched_setaffinity(0, cores)
        except OSError:
            pass  # the cores that the process may use were changed from outside: wherever it is now is fine
