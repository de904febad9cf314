"""File descriptors, which connections and files share.

Their limit, the number of connections that it is enough for, and what to do when none is free.

A process without a free descriptor can open no file, which says nothing about the disk: so whoever opens one tries
again (:func:`when_free`). It hardly ever comes to that, because the fronts take no more connections than leave some for
logs, checkpoints and the embedded databases. And where others use those up, too, a few are held back: the process's
soft limit stays a little below what it could be (:func:`raise_limit`), and is lifted for the moment in which a file is
opened that met it. So the limit itself says whether there are some, and nobody else in this process can take them.
"""

from __future__ import annotations

import errno
import logging
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import sleep
from typing import TypeVar

from tarry.base.back_off import BackOff

log = logging.getLogger(__name__)

NONE_FREE = (errno.EMFILE, errno.ENFILE)
LIMIT_MAX = 1 << 20
"""Highest limit asked for: some programs started from here walk through all numbers up to it."""
RESERVE = 512
"""Descriptors that are not for connections.

A broker with all its fronts begins with about 40, the registry keeps up to
64 files, and a window of the store is read from some at a time. Of a small limit it is half.
"""
HELD_BACK = 64
"""Descriptors that only :func:`when_free` can have. Of a small limit it is an eighth."""
CONNECTIONS_MAX = 10_000
"""Most connections of a port, whatever the limit is: each takes memory, too."""
WAIT_S_MAX = 30.0
"""Seconds of waiting for a free descriptor before failing."""

T = TypeVar("T")


def raise_limit() -> int:
    """Let this process open as many files as the hard limit allows, but for those held back.

    Return that number.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    raised, most = _limits(hard)
    if soft != resource.RLIM_INFINITY and soft <= most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    return limit()


def limit() -> int:
    """Return the number of files that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LIMIT_MAX if soft == resource.RLIM_INFINITY else soft


def number_limit() -> int:
    """Above the number of any descriptor, also of those that were held back."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(limit(), _limits(hard)[1])


def _limits(hard: int) -> tuple[int, int]:
    """Return the raised soft limit, and the one for opening a file with a descriptor held back."""
    most = LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, LIMIT_MAX)
    return most - min(HELD_BACK, most // 8), most


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits on a port's connections, in all and from one peer address."""

    in_all: int = CONNECTIONS_MAX
    per_peer: int = CONNECTIONS_MAX

    @classmethod
    def of(cls, descriptors: int, ports: int) -> ConnectionLimits:
        """Share the ``descriptors`` beside the reserve among ``ports``. One peer may have half of a share."""
        in_all = (descriptors - min(RESERVE, descriptors // 2)) // max(1, ports)
        in_all = max(2, min(in_all, CONNECTIONS_MAX))
        return cls(in_all, in_all // 2)

    def shared_by(self, ports: int) -> ConnectionLimits:
        """Return the share of each of several ports of one front."""
        return ConnectionLimits(max(2, self.in_all // ports), max(1, self.per_peer // ports))


def lacks_descriptor(error: BaseException) -> bool:
    """Return whether something failed for lack of a descriptor; embedded databases only say so in words."""
    number = error.errno if isinstance(error, OSError) else None
    return number in NONE_FREE or (number is None and "Too many open files" in str(error))


def when_free(open_file: Callable[[], T]) -> T:
    """Return ``open_file()``, also while no descriptor is free.

    Then it is tried with one that was held back, and if there is none of those either, again for :data:`WAIT_S_MAX`.

    Raises:
        Exception: whatever it raises for another reason, or still after that time.
    """
    back_off, waited_s = BackOff(0.01, 1.0), 0.0
    while True:
        try:
            return open_file()
        except Exception as error:
            if not lacks_descriptor(error):
                raise
            failure = error
        with _limit_lifted() as lifted:
            try:
                if lifted:
                    return open_file()
            except Exception as error:
                if not lacks_descriptor(error):
                    raise
        if waited_s >= WAIT_S_MAX:
            raise failure
        if not waited_s:
            log.warning("no file can be opened, trying again: %s", failure)
        wait_s = back_off.fail()
        sleep(wait_s)
        waited_s += wait_s


@contextmanager
def _limit_lifted() -> Iterator[bool]:
    """Let this process use the descriptors held back; yield whether it can.

    Of two threads, one may end it for the other, which then
    tries again. Where the limit is none that :func:`raise_limit` has set, the process is somebody else's.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    raised, most = _limits(hard)
    if soft != raised:
        yield False
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield True
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
