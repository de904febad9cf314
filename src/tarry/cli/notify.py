"""Messages to systemd about how a service stands, as sd_notify(3) has them.

They are datagrams to the socket that NOTIFY_SOCKET names. With ``Type=notify`` the unit has started when it is told so,
and with ``WatchdogSec`` the process is killed and started again if it is not heard of for so long. Without such a
socket nothing is told.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping

SOCKET, WATCHDOG_US, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class ServiceManager:
    """The service manager that started this process, if one did."""

    def __init__(
        self, environment: Mapping[str, str] = os.environ, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Look for it in the environment."""
        path = environment.get(SOCKET, "")
        self._place = "\0" + path[1:] if path.startswith("@") else path
        watched_us = environment.get(WATCHDOG_US, "")
        is_watched = environment.get(WATCHDOG_PID, str(os.getpid())) == str(os.getpid())
        # Twice as often as has to be, as sd_watchdog_enabled(3) advises.
        self._every_s = int(watched_us) / 2e6 if watched_us.isdecimal() and is_watched else None
        self._now_s, self._told_s = now_s, -float("inf")

    def is_serving(self, status: str) -> None:
        """Tell that the service has started. ``status``: a line for ``systemctl status``."""
        self._tell(f"READY=1\nSTATUS={status}")

    def is_stopping(self) -> None:
        """Tell that it stops."""
        self._tell("STOPPING=1\nSTATUS=stopping")

    def lives(self) -> None:
        """Tell that it lives, where that is watched. Call it often: it tells no more than it has to."""
        if self._every_s is not None and self._now_s() - self._told_s >= self._every_s:
            self._told_s = self._now_s()
            self._tell("WATCHDOG=1")

    def _tell(self, text: str) -> None:
        if not self._place:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(1)
                sender.sendto(text.encode(), self._place)
        except OSError:
            pass  # whoever listened has gone; the service goes on
