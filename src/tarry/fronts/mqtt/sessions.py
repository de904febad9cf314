"""Sessions of clients: subscriptions, and groups in which messages wait while a client is away.

Sessions are in memory. Their groups are durable: after a restart of the broker a client is told that its session is
new, subscribes again, and finds there what it has missed.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Protocol

from tarry.api.identities import ANONYMOUS
from tarry.api.needs import Right
from tarry.api.operations import ListGroups
from tarry.base.errors import TarryError
from tarry.fronts.kit.desk import Desk
from tarry.fronts.mqtt.packets import RequestedFilter
from tarry.fronts.mqtt.reasons import MqttError, Reason
from tarry.fronts.mqtt.topics import GROUP, group_of
from tarry.identity.principal import LOCAL, Principal
from tarry.message.receipt import Receipt

log = logging.getLogger(__name__)

AWAY_MAX = 10_000
"""Sessions that may be kept for clients that are away."""
SHARES = 4
"""One identity may have this part of them."""


class Connected(Protocol):
    """The client of a session."""

    def end(self, reason: Reason, text: str) -> None:
        """End the connection; the session is without a client when this returns."""
        ...


@dataclass(slots=True, eq=False)
class Session:
    """Everything that is kept of a client between its connections."""

    group: str
    """The group of its own subscriptions, in each of their topics."""
    expiry_s: float = 0.0
    """Seconds for which it is kept without a connection."""
    client: Connected | None = None
    subscriptions: dict[str, tuple[RequestedFilter, int | None]] = field(default_factory=dict)
    """By filter, each with its subscription identifier."""
    topics: set[str] = field(default_factory=set)
    """Topics in which it has its group."""
    owner: str | None = None
    """Name of the caller that it is of; None: it was found at the start, and nobody has come back to it."""
    will: asyncio.Future[Receipt] | None = None
    """The delayed will of the last connection."""
    is_found: bool = False
    """True if groups were found at the start, and nothing else is known of it."""
    timer: asyncio.TimerHandle | None = None
    ended: asyncio.Task[None] | None = None


class Sessions:
    """Sessions by group. On the event loop's thread."""

    def __init__(self, desk: Desk, expiry_s_max: float) -> None:
        self._desk = desk
        self._expiry_s_max = expiry_s_max
        self._by_group: dict[str, Session] = {}

    async def recover(self) -> None:
        """Find the groups of former runs; they are deleted unless their clients come back."""
        for info in await self._desk.call(ListGroups()):
            if info.group.startswith(GROUP):
                session = self._by_group.setdefault(info.group, Session(info.group, self._expiry_s_max, is_found=True))
                session.topics.add(info.topic)
        for session in list(self._by_group.values()):
            self._plan(session)

    async def open(
        self, client_id: str, client: Connected, principal: Principal, expiry_s: float, *, clean: bool
    ) -> tuple[Session, bool]:
        """Return the session of a client, and whether it is an earlier one. A former connection is ended.

        Args:
            clean: what an earlier session has is forgotten.

        Raises:
            MqttError: CLIENT_ID_INVALID, QUOTA_EXCEEDED.
        """
        group, present = self._group_of(client_id, principal), False
        while (session := self._by_group.get(group)) is not None:
            if session.client is not None:
                session.client.end(Reason.TAKEN_OVER, "another connection has the same client id")
            if not clean and session.ended is None:
                present, session.is_found = not session.is_found, False
                break
            await self._end(session)
        if session is None:
            if expiry_s:
                self._check_room(principal)
            session = self._by_group[group] = Session(group)
        if session.timer is not None:
            session.timer.cancel()
            session.timer = None
        session.owner = principal.name
        session.client, session.expiry_s = client, min(expiry_s, self._expiry_s_max)
        return session, present

    def _group_of(self, client_id: str, principal: Principal) -> str:
        """Return the group of a client, which clients of other identities have none in by the same id."""
        group = group_of(client_id)
        session = self._by_group.get(group)
        if session is None or _is_own(session, principal):
            return group
        return group_of(client_id, principal.name)

    def _check_room(self, principal: Principal) -> None:
        kept = len(self._by_group)
        if kept >= AWAY_MAX:
            raise MqttError(Reason.QUOTA_EXCEEDED, f"{AWAY_MAX} sessions are kept; allowed: clean ones")
        share = AWAY_MAX // SHARES
        if principal.is_local or kept < share:
            return
        own = sum(session.owner == principal.name for session in self._by_group.values())
        if own >= share:
            text = f"{own} sessions of {principal.name} are kept; allowed: {share}, and clean ones"
            raise MqttError(Reason.QUOTA_EXCEEDED, text)

    def leave(self, session: Session) -> None:
        """Keep a session whose connection has ended until it expires."""
        session.client = None
        self._plan(session)

    async def close(self) -> None:
        """Wait until the groups of sessions that have ended are deleted."""
        for session in self._by_group.values():
            if session.timer is not None:
                session.timer.cancel()
        await asyncio.gather(*(each.ended for each in self._by_group.values() if each.ended is not None))

    def _plan(self, session: Session) -> None:
        if session.expiry_s:
            session.timer = self._desk.loop.call_later(session.expiry_s, self._end, session)
        else:
            self._end(session)

    def _end(self, session: Session) -> asyncio.Task[None]:
        """Delete the groups of a session; done when that is durable."""
        if session.timer is not None:
            session.timer.cancel()
        if session.ended is None:
            session.ended = self._desk.loop.create_task(self._forget(session))
        return session.ended

    async def _forget(self, session: Session) -> None:
        try:
            for topic in list(session.topics):
                await self._desk.forget_queue(topic, session.group)
        except TarryError as error:
            log.warning("groups of an MQTT session could not be deleted: %s", error)
        del self._by_group[session.group]


def _is_own(session: Session, principal: Principal) -> bool:
    """Return whether a session is a caller's. Messages and will of another's are not for this one.

    One of a former run, of the time before there were identities, or of somebody who showed no credential, is for
    whoever may consume what is in it: so a client that shows one from now on goes on with its session.
    """
    if session.owner in (None, LOCAL.name, ANONYMOUS):
        return all(principal.rights.allow(Right.CONSUME, topic, session.group) for topic in session.topics)
    return principal is LOCAL or session.owner == principal.name
