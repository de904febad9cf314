"""Ends processes together: a job ends when its parent has ended, and ends all that it has started.

A job leads a session of its own. Spark's JVM stays in it, and so do the Python workers, though their daemon makes a
process group of its own; so all processes of a job have its session id.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1


def follow_parent(parent_pid: int, on_exit: Callable[[], None]) -> None:
    """Arrange for SIGTERM when the parent ends, and for ``on_exit()`` in a thread.

    Two ways, because neither is enough: the signal comes at once but only from the very parent, and on Linux; the
    thread watches any process, but a thread can be starved. ``on_exit`` is called, too, when the parent had ended
    before this call.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    def watch() -> None:
        _wait_for_exit(parent_pid)
        log.warning("the parent process %d has ended: stopping", parent_pid)
        on_exit()

    threading.Thread(target=watch, name="tarry-parent-watch", daemon=True).start()


def _wait_for_exit(pid: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (OSError, AttributeError):
        while alive(pid):
            time.sleep(1)
        return
    try:
        select.select([fd], [], [])
    finally:
        os.close(fd)


def alive(pid: int) -> bool:
    """Return whether a process has this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def session_members(session: int) -> list[int]:
    """Return the ids of a session's living processes, without zombies; none if there is no /proc."""
    members = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (name) state parent group session …; the name may hold anything, so count from its closing bracket.
            state, _, _, owner = entry.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(owner) == session and state not in "ZX":
            members.append(int(entry.parent.name))
    return members


def kill_session(leader: int, *, spare_self: bool = False) -> None:
    """Kill (SIGKILL) everything in the session that ``leader`` leads.

    It tries again until nothing is left: a process may be forking meanwhile.
    """
    for _ in range(50):
        left = [pid for pid in session_members(leader) if not (spare_self and pid == os.getpid())]
        if sys.platform != "linux":
            _kill(-leader)
        if not left:
            return
        for pid in left:
            _kill(pid)
        time.sleep(0.02)


def _kill(pid: int) -> None:
    try:
        if pid < 0:
            os.killpg(-pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
