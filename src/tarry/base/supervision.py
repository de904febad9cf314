"""Keeps something running: begins it again when it has ended, after a pause if it failed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F")


def keep_running(run: Callable[[], F | None], on_failure: Callable[[F], float], stopping: threading.Event) -> None:
    """Call ``run`` again and again, until ``stopping``.

    ``run`` returns why it failed, for which ``on_failure`` has the seconds to wait before the next call; or None, and
    is called again at once. What either raises ends it all.
    """
    while not stopping.is_set():
        failure = run()
        if failure is not None and not stopping.is_set():
            stopping.wait(on_failure(failure))


def end_of_process(code: int) -> str:
    """Return how a process ended, from its exit code as ``subprocess`` has it."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # one of the real-time signals, which have no names
        return f"killed by signal {-code}"
