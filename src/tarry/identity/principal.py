"""A caller that is known: the name of an identity, and its rights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from tarry.api.accounts import QuotaAccount
from tarry.api.audit import AskedBy, NotesRefusals
from tarry.api.identities import ANONYMOUS, AccessDecision, WhoIs
from tarry.api.needs import OF_THE_BROKER, Right
from tarry.api.operations import CheckAccess
from tarry.base.errors import ForbiddenError
from tarry.identity.rights import EVERYTHING, Rights


@dataclass(slots=True, eq=False)
class Principal:
    """A caller. Nothing of it changes but its rights, as long as its connection stands: they may grow."""

    name: str
    rights: Rights
    """Set by :meth:`tarry.identity.authenticator.Authenticator.is_known` alone. Any thread reads it."""
    credential: str | None = None
    """Id of the credential that was shown; None: none was asked for."""
    account: QuotaAccount | None = None
    """The use of its identity, held against its quotas; None: it has none."""
    refusals: NotesRefusals | None = field(default=None, repr=False)
    """Is told what it had no right to."""
    front: str | None = None
    """The front that has found out who it is."""

    expires_ms: int | None = None
    """It is known no longer from then on; None: as long as its credential."""

    @property
    def is_local(self) -> bool:
        """True if nobody was asked who it is, and it may do everything."""
        return self.credential is None and self.rights.is_unlimited

    @property
    def is_anonymous(self) -> bool:
        """True if it has shown no credential, on a port that asks."""
        return self.credential == ANONYMOUS

    def check(
        self,
        right: Right,
        topic: str | None = None,
        group: str | None = None,
        *,
        operation: str = "right",
        asked: AskedBy | None = None,
        peer: str | None = None,
    ) -> None:
        """Refuse what the caller has no right to.

        ``topic`` is None for a right on the broker itself; for another right, None is every topic there may be.
        A refusal is noted, of the ``operation`` and of who ``asked``, or of its address ``peer``, as far as known.

        Raises:
            ForbiddenError: it is not granted.
        """
        if not self.rights.allow(right, topic, group):
            self.note_refusal(right, topic, group, operation, asked or self.asks(peer))
            who = f"{self.name}, as whom you come without a credential," if self.is_anonymous else self.name
            raise ForbiddenError(f"{who} has not the right {_shown(right, topic, group)}; see tarry whoami")

    def note_refusal(
        self, right: Right, topic: str | None, group: str | None, operation: str = "right", asked: AskedBy | None = None
    ) -> None:
        """Note that it was refused."""
        if self.refusals is not None:
            self.refusals.right(asked or self.asks(), right, topic, group, operation)

    def asks(self, peer: str | None = None, front: str | None = None, request: str | None = None) -> AskedBy:
        """Return it as the caller of an operation."""
        return AskedBy(self.name, self.credential, front or self.front, peer or None, request)

    @property
    def is_bounded(self) -> bool:
        """True if its identity has quotas."""
        return self.account is not None and self.account.is_bounded

    def wait_s(self, waited_s: float = 0.0) -> float:
        """Return the seconds by which its next message is to be delayed: see :meth:`QuotaAccount.wait_s`."""
        return 0.0 if self.account is None else self.account.wait_s(waited_s)

    async def in_turn(self) -> None:
        """Wait as long as its quotas delay its next message."""
        if wait_s := self.wait_s():
            await asyncio.sleep(wait_s)
            if rest_s := self.wait_s(wait_s):
                await asyncio.sleep(rest_s)

    def charge(self, messages: int, size: int, topics: Iterable[str]) -> None:
        """Count messages that are to be scheduled: see :meth:`QuotaAccount.charge`.

        Raises:
            QuotaExceededError: they are too many.
        """
        if self.account is not None:
            self.account.charge(messages, size, topics)

    def who(self) -> WhoIs:
        """Return what a caller is told of itself."""
        limits = {} if self.account is None else self.account.quotas.limits()
        return WhoIs(self.name, [str(grant) for grant in self.rights.grants], self.credential, limits)

    def decide(self, asked: CheckAccess) -> AccessDecision:
        """Return whether it has the right that is asked about."""
        return AccessDecision(self.name, self.rights.allow(Right(asked.right), asked.topic, asked.group))


LOCAL = Principal("local", EVERYTHING)
"""Whoever is on this machine, while a broker has no identities; and the broker's own parts."""

NOBODY = Principal("nobody", Rights(()))
"""Whoever is not known, and may do nothing."""


def _shown(right: Right, topic: str | None, group: str | None) -> str:
    if right in OF_THE_BROKER:
        return right.value
    where = "all topics" if topic is None else f"topic {topic!r:.300}"
    return f"{right.value} on {where}" + ("" if group is None else f" with group {group!r:.300}")
