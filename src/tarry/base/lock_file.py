"""A file that one process holds, of all that want it: it says which, and on which machine."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

from tarry.base.errors import LockedError

_BYTES_MAX = 512


class LockFile:
    """A lock, held until :meth:`release`; the operating system releases it when the process dies.

    ``number``: how often the lock was taken, this time included, as far as the file knows.
    """

    def __init__(self, path: Path, *, held: Path, user: str) -> None:
        """``held`` is what the file stands for, ``user`` what may hold it, for the refusal.

        Raises:
            LockedError: it is held, in another process or in this one.
        """
        self._path = path
        self._fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            content = b""
            with suppress(OSError):
                content = os.pread(self._fd, _BYTES_MAX, 0)
            os.close(self._fd)
            process, host, _ = _decoded(content)
            place = f" on {host}" if host not in ("", socket.gethostname()) else ""
            raise LockedError(
                f"{held} is in use by another {user} (process {process or 'unknown'}{place}); one is allowed"
            ) from error
        self.number = 1
        self._content: bytes | None = None
        with suppress(OSError):  # it holds also where the disk is full, or cannot be read
            self.number = _decoded(os.pread(self._fd, _BYTES_MAX, 0))[2] + 1
            content = f"{os.getpid()} {socket.gethostname()} {self.number}\n".encode()
            os.pwrite(self._fd, content, 0)
            os.ftruncate(self._fd, len(content))
            self._content = content

    @property
    def is_held(self) -> bool:
        """True unless it is released, or it can be seen that the file is another, or names another holder.

        The last two are seen where locks do not keep others out: the file was deleted and made anew, or several
        machines have a file system without locks between them.
        """
        if self._fd < 0:
            return False
        try:
            there = self._path.stat()
            own = os.fstat(self._fd)
            content = self._path.read_bytes()
        except FileNotFoundError:
            return False
        except OSError:
            return True  # nothing is seen: the disk fails, or no descriptor is free
        return (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino) and self._content in (None, content)

    def release(self) -> None:
        """Let go of it; nothing happens where that was done."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _decoded(content: bytes) -> tuple[str, str, int]:
    """Return process, machine and number; older files have the process alone."""
    process, host, number, *_ = [*content.decode(errors="replace").split(), "", "", ""]
    return process, host, int(number) if number.isdecimal() else 0
