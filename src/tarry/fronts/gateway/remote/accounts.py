"""The use of identities in a worker: let pass at once, and told to the broker a moment later.

The broker counts for all processes. So an identity goes beyond its rates by what all workers let pass within
:data:`TELL_S`, and pays for it afterwards.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from tarry.api.wire import decode_json, encode_json
from tarry.base.clock import Clock
from tarry.base.errors import TarryError
from tarry.base.event_loop import post
from tarry.fronts.gateway.remote.link import Link
from tarry.identity.accounts import AccountBook, Existing
from tarry.link.frames import FrameKind

TELL_S = 0.1


class RemoteAccounts:
    """The accounts of a worker. On the loop's thread, but for the book."""

    def __init__(self, clock: Clock, existing: Callable[[], Existing]) -> None:
        """``existing`` asks the broker what is there, and waits for the answer."""
        self.book = AccountBook(clock, self._on_spent)
        """The accounts."""
        self.book.count_existing = _Asked(existing).count
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._spent: set[str] = set()
        """Identities that have spent something of which the broker does not know."""
        self._is_planned = False

    def begin(self, link: Link) -> None:
        """Tell the broker by this link from now on, on the running loop."""
        self._link, self._loop = link, asyncio.get_running_loop()

    def _on_spent(self, name: str) -> None:
        if self._loop is not None:
            post(self._loop, self._plan, name)

    def _plan(self, name: str) -> None:
        self._spent.add(name)
        if not self._is_planned and self._loop is not None:
            self._is_planned = True
            self._loop.call_later(TELL_S, self._tell)

    def _tell(self) -> None:
        self._is_planned = False
        names, self._spent = self._spent, set()
        assert self._link is not None
        told = {name: self.book.of(name).take_spent() for name in names}
        self._link.ask(FrameKind.USE, self._on_told, encode_json(told))

    def _on_told(self, answer: Any) -> None:
        if isinstance(answer, TarryError):
            return  # the link has ended, and the worker ends with it
        for name, left in decode_json(bytes(answer)).items():
            self.book.of(name).take_over(left)


class _Asked:
    """Counts what is there by asking the broker, in a thread; only the first one waits for the answer.

    Others get the one of before.
    """

    def __init__(self, ask: Callable[[], Existing]) -> None:
        self._ask = ask
        self._asking = threading.Lock()
        self._found: Existing | None = None

    def count(self) -> Existing:
        """Return what was there when it was counted last."""
        if self._found is None:
            self._found = self._ask()
        elif self._asking.acquire(blocking=False):
            threading.Thread(target=self._ask_again, name="tarry-count", daemon=True).start()
        return self._found

    def _ask_again(self) -> None:
        try:
            self._found = self._ask()
        except TarryError:
            pass  # the broker is out of reach: it counts itself when it takes messages
        finally:
            self._asking.release()
