"""A file that one process holds, of all that want it: it says which."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from tarry.base.errors import LockedError


class LockFile:
    """A lock, held until :meth:`release`; the operating system releases it when the process dies."""

    def __init__(self, path: Path, *, held: Path, user: str) -> None:
        """``held`` is what the file stands for, ``user`` what may hold it, for the refusal.

        Raises:
            LockedError: it is held, in another process or in this one.
        """
        self._fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise LockedError(
                f"{held} is in use by another {user} (process {holder or 'unknown'}); one is allowed"
            ) from error
        # Only for the refusal above: on a full disk it holds without it.
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go of it; nothing happens where that was done."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
