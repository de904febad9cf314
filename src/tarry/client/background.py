"""The event loop of this process's clients, in one thread, which ends with the process.

It carries all of their connections but those of :class:`tarry.client.AsyncClient`'s single messages. Nothing that
runs on it waits: what a user's code does, it does in threads of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading

import uvloop

_lock = threading.Lock()
_running: dict[int, asyncio.AbstractEventLoop] = {}
"""The loop, by the process's id: a child of a fork has none of its parent's threads."""


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, which is started when it is first asked for. Any thread."""
    loop = _running.get(os.getpid())
    return loop or _start()


def _start() -> asyncio.AbstractEventLoop:
    with _lock:
        loop = _running.get(os.getpid())
        if loop is None:
            loop = _running[os.getpid()] = uvloop.new_event_loop()
            threading.Thread(target=loop.run_forever, name="tarry-client", daemon=True).start()
        return loop


def _new_lock() -> None:
    # The fork may have happened while another thread had it.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)
