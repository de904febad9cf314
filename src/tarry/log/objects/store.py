"""Requests of the engine to an object store, each repeated until there is an answer.

An answer is certain or it is none. :class:`UnavailableError` stands for "cannot be asked": whether a request was
carried out is unknown then, and nothing may rest on it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary

from tarry.base.back_off import BackOff
from tarry.base.errors import FatalError, UnavailableError

log = logging.getLogger(__name__)

A = TypeVar("A")
WARN_S = 15.0
"""Time between warnings that requests are not answered, of all that wait; the first one comes sooner."""
PAUSE_S, PAUSE_MAX_S = 0.05, 1.0
AWAY_S = 0.6
"""A store that answers nothing for so long is away; less is a request that failed."""
REFUSED_S = 1.0
"""And one that refuses: a right that was just given may take a moment."""
PATIENCE_S = 10.0
"""Time for which a start, or a follower, asks a store that gives no answer."""
TRIALS = 5
_warned_s: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()
"""Time of the last warning, by the loop that the requests are of: some wait at the same time."""
_CREATIONS = 2
"""Creations of a trial whose requests were all answered."""


class StoreRefusal(Exception):  # noqa: N818  it is the cause of an UnavailableError
    """The store has answered, and refuses: a wrong key, no such bucket, no right."""


def is_refused(error: BaseException) -> bool:
    """Return whether to ask again is of no use before somebody has changed a setting or a right."""
    return isinstance(error.__cause__, StoreRefusal)


class ObjectStore(Protocol):
    """Objects by name, each created once.

    Every call raises UnavailableError where there is no certain answer.
    A missing right, an unknown bucket, an error of the server and a timeout are no answers; "no such key" is one, and
    only the store itself can give it. A store reads what was written: GET and list see each object whose PUT was
    answered before they began.
    """

    async def create(self, key: str, content: bytes) -> bool:
        """Create an object if there is none. False: there is one, perhaps by an earlier try."""
        ...

    async def get(self, key: str) -> bytes | None:
        """Return an object's content; None: no such key."""
        ...

    async def exists(self, key: str) -> bool:
        """Return whether the store has that key."""
        ...

    async def list(self, prefix: str) -> list[str]:
        """Return all keys that begin with ``prefix``, which ends with a slash, in any order."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, up to 1,000 of them; one that is not there is fine.

        Where there is no answer, any of them may be gone.
        """
        ...


class CountedObjects:
    """An :class:`ObjectStore` whose requests are counted, as stores charge for them. From one event loop."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.puts = self.gets = self.lists = self.deletes = 0
        self.answered_s = 0.0
        """Time of its last answer, by the loop's clock."""
        self.recovered_s = 0.0
        """Time of its last answer that came after none had come for a while."""
        self.error: str | None = None
        """Reason for which it gives no answer; None: it does."""
        self._away_s = 0.0  # since when that is so

    @property
    def counts(self) -> dict[str, int]:
        """Requests by kind."""
        return {"put": self.puts, "get": self.gets, "list": self.lists, "delete": self.deletes}

    async def create(self, key: str, content: bytes) -> bool:
        self.puts += 1
        return await self._answer(self._store.create(key, content))

    async def get(self, key: str) -> bytes | None:
        self.gets += 1
        return await self._answer(self._store.get(key))

    async def exists(self, key: str) -> bool:
        self.gets += 1
        return await self._answer(self._store.exists(key))

    async def list(self, prefix: str) -> list[str]:
        self.lists += 1
        return await self._answer(self._store.list(prefix))

    async def delete(self, keys: Sequence[str]) -> None:
        self.deletes += 1
        await self._answer(self._store.delete(keys))

    async def _answer(self, request: Awaitable[A]) -> A:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        try:
            answer = await request
        except UnavailableError as error:
            if self.error is None:
                self._away_s = max(begun_s, self.answered_s)  # others may have been answered meanwhile
            self.error = str(error)
            raise
        if self.error is not None and loop.time() - self.answered_s > AWAY_S:
            self.recovered_s = loop.time()
            if _warned_s.get(loop, -math.inf) >= self._away_s:  # else nobody was told that it is away
                log.warning("the bucket of the logs answers again, after %.0f s", loop.time() - self._away_s)
        self.answered_s, self.error = loop.time(), None
        return answer


async def asked(request: Callable[[], Awaitable[A]], patience_s: float = math.inf) -> A:
    """Repeat a request until it is answered.

    Raises:
        UnavailableError: it was not, for ``patience_s`` seconds.
    """
    clock = asyncio.get_running_loop()
    until_s = clock.time() + patience_s
    back_off = BackOff(PAUSE_S, PAUSE_MAX_S)
    warn_s = clock.time() + WARN_S / 3
    while True:
        try:
            return await request()
        except UnavailableError as error:
            if clock.time() >= (until_s if not is_refused(error) else until_s - patience_s + REFUSED_S):
                raise
            if clock.time() >= max(warn_s, _warned_s.get(clock, -math.inf) + WARN_S):
                tell_away("%s; trying again", error)
        await asyncio.sleep(back_off.fail())


def tell_away(text: str, error: UnavailableError) -> None:
    """Say in the log that the store gives no answer: it is said, too, when it does again. On its loop."""
    log.warning(text, error)
    clock = asyncio.get_running_loop()
    _warned_s[clock] = clock.time()


async def created(store: ObjectStore, key: str, content: bytes, patience_s: float = math.inf) -> bytes:
    """Create an object, and return the bytes that are there: ``content``, or another's.

    "There is one" is never believed without a look: it is also what a store says of an earlier try of one's own whose
    answer was lost, and of a race that nobody has won yet. Raises UnavailableError, as :func:`asked` does.
    """

    async def attempt() -> bytes:
        if await store.create(key, content):
            return content
        there = await store.get(key)
        if there is None:
            raise UnavailableError(f"{key} is said to exist, and is not there")
        return there

    return await asked(attempt, patience_s)


async def try_out(store: ObjectStore) -> None:
    """Check that a store does what the engine rests on: conditions, rights, and no cache in between.

    Raises:
        FatalError: it does not; says in which step.
        UnavailableError: it cannot be asked.
    """
    for _ in range(TRIALS):
        if await _is_tried_out(store):
            return
    raise UnavailableError(
        f"the store of the logs could not be tried out: in {TRIALS} trials, requests were carried out late, or not "
        "answered"
    )


async def _is_tried_out(store: ObjectStore) -> bool:
    """Check it with an object of its own. False: it shows nothing. Raises as :func:`try_out` does."""
    store = counted = CountedObjects(store)
    key = f"trial/{secrets.token_hex(16)}"

    async def step(what: str, request: Callable[[], Awaitable[object]], allowed: object) -> None:
        if (found := await asked(request, PATIENCE_S)) != allowed:
            raise FatalError(
                f"the store of the logs answered {found!r} to {what} of {key}; allowed: {allowed!r}. It ignores "
                "conditions, or a cache answers in its place, and no log can be kept there"
            )

    await step("a look before the creation", lambda: store.exists(key), False)
    await step("a creation", lambda: created(store, key, b"1"), b"1")
    await step("a second creation", lambda: created(store, key, b"2"), b"1")
    await step("a look after it", lambda: store.exists(key), True)
    await asked(lambda: store.delete([key]), PATIENCE_S)
    if counted.puts > _CREATIONS:
        # One of them was repeated, and may be carried out after the deletion.
        return not await asked(lambda: store.exists(key), PATIENCE_S)
    await step("a look after the deletion", lambda: store.exists(key), False)
    return True
