"""The event loop of this process's clients, in one thread, which ends with the process.

It carries all of their connections but those of :class:`tarry.client.AsyncClient`'s single messages. Nothing that
runs on it waits: what a user's code does, it does in threads of its own.

Where gevent has made threads greenlets, this one stays a thread of the system: as a greenlet, the loop would let no
other one run. Who waits for an answer waits as a greenlet then, by locks of gevent's, which threads may share.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable

import uvloop

from tarry.base.errors import InvalidArgumentError

_lock = threading.Lock()
_running: dict[int, asyncio.AbstractEventLoop] = {}
"""The loop, by the process's id: a child of a fork has none of its parent's threads."""


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, which is started when it is first asked for. Any thread.

    Raises:
        InvalidArgumentError: eventlet has replaced the threads, and no other thread can wake one of its own.
    """
    loop = _running.get(os.getpid())
    return loop or _start()


def _start() -> asyncio.AbstractEventLoop:
    with _lock:
        loop = _running.get(os.getpid())
        if loop is None:
            start_thread = _thread_starter()
            loop = _running[os.getpid()] = uvloop.new_event_loop()
            start_thread(loop.run_forever)
        return loop


def _thread_starter() -> Callable[[Callable[[], object]], object]:
    """Return what runs a function in a thread of the system, also where ``threading`` was replaced."""
    eventlet, gevent = sys.modules.get("eventlet.patcher"), sys.modules.get("gevent.monkey")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        raise InvalidArgumentError("eventlet has replaced the threads of this program; allowed: gevent, or none")
    if gevent is not None and gevent.is_module_patched("threading"):
        start_new_thread = gevent.get_original("_thread", "start_new_thread")
        return lambda function: start_new_thread(function, ())
    return lambda function: threading.Thread(target=function, name="tarry-client", daemon=True).start()


def _new_lock() -> None:
    # The fork may have happened while another thread had it.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)
