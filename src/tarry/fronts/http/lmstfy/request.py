"""One request of lmstfy's API: what it is about, and its one answer, which comes at once or later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tarry.api.audit import AskedBy
from tarry.api.needs import Right
from tarry.fronts.http.exchange import DisconnectedError, HttpRequest, HttpResponse
from tarry.fronts.http.lmstfy.answering import Answering
from tarry.identity.principal import NOBODY


class LmstfyRoute(NamedTuple):
    """The meaning of a method and the parts of a path behind the queue."""

    carry: Carry
    rights: tuple[Right, ...]
    """Rights that an identity needs on the queue's topic; but for producing, with lmstfy's group."""
    reads: bool | None = None
    """True if it counts as one of a token's reads, False: as a write; None: as neither."""
    public: bool = False
    """True if no token is needed, while there are no identities."""
    several: bool = False
    """True if the path may name several queues, with commas between."""


@dataclass(slots=True, eq=False)
class Target:
    """The meaning of a method with a path and a query. Clients send the same few again and again."""

    route: LmstfyRoute
    namespace: str
    queue: str
    topic: str
    job: str
    known: Any = None
    """Data that the route keeps for the next request with this target, which is then remembered."""


class LmstfyRequest:
    """On the event loop's thread."""

    __slots__ = ("_answering", "_begun_s", "http", "on_end", "principal", "target")

    def __init__(self, http: HttpRequest, answering: Answering) -> None:
        self.http = http
        self.target: Target
        self.principal = NOBODY
        """The caller, once it is known."""
        self.on_end: Callable[[int], None] | None = None
        """Called with the status of the answer; 0: there is none."""
        self._answering = answering
        self._begun_s = time.monotonic()

    @property
    def asked(self) -> AskedBy:
        """The caller, for the audit log."""
        return self.principal.asks(self.http.host, "http")

    def answer(self, response: HttpResponse) -> None:
        """Answer the request, once. If the client has gone, nobody gets the answer."""
        if self.on_end is not None:
            self.on_end(response.status)
        self._answering.answer(self.http, response, self._begun_s)

    def refuse(self, error: Exception) -> None:
        """Answer with an error."""
        self.answer(self._answering.refusal(self.http, error))

    def carry_out(self, work: Awaitable[HttpResponse]) -> None:
        """Have work done in a task, and answer with its result."""
        self.http.carry_out(self.wait_for(work))

    async def wait_for(self, work: Awaitable[HttpResponse]) -> None:
        """Answer with the result of ``work``.

        Raises:
            DisconnectedError: nobody waits for an answer.
        """
        try:
            response = await work
        except (DisconnectedError, asyncio.CancelledError):
            if self.on_end is not None:
                self.on_end(0)
            raise
        except Exception as error:  # noqa: BLE001 - it is logged, and the client gets an answer
            self.refuse(error)
        else:
            self.answer(response)


Carry: TypeAlias = Callable[[LmstfyRequest], Awaitable[HttpResponse] | None]
"""Carries out a request: it answers, at once or later, or returns an awaitable of the answer.

Raises:
    RefusalError, TarryError: the request is answered with it.
"""
