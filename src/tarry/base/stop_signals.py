"""Being told to stop.

A signal handler runs between any two instructions of the main thread, also inside of locks; so it only writes to a
pipe, which the main thread waits at.
"""

from __future__ import annotations

import os
import select
import signal
from typing import Any


class StopSignals:
    """SIGTERM and SIGINT through a self-pipe, as something to wait for; SIGHUP is ignored.

    The second one ends the process on the spot, with exit code 1, unless ``patient``: then it is as the first.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self._patient = patient
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._seen = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._handle)
        # What a server is told to read again (certificates) it reads by itself when it changes. And whoever closes the
        # terminal does not mean to end it.
        self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """Return what can be read from once a signal has come, for an event loop."""
        return self._read

    def wait(self, timeout_s: float) -> bool:
        """Wait for a signal; whether there was one."""
        poll = select.poll()  # not select(), which knows no file descriptor above 1023
        poll.register(self._read, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def _handle(self, number: int, _: object) -> None:
        if not self._seen:
            self._seen = True
            os.write(self._write, b"x")
        elif not self._patient:
            os._exit(1)
