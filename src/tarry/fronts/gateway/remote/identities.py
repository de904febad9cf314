"""Identities that the broker has told a worker of."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Any

from tarry.api.identities import Credential, Identity
from tarry.api.operation import known
from tarry.base.errors import UnavailableError
from tarry.base.listeners import Listeners
from tarry.identity.accounts import AccountBook

TOLD_S = 30.0
"""Seconds that a broker may take to tell them for the first time."""


class RemoteIdentities:
    """The identities, as the broker told them last. On the loop's thread; :attr:`snapshot` on any."""

    def __init__(self, accounts: AccountBook) -> None:
        """``accounts`` are held against the quotas that are told."""
        self._accounts = accounts
        self._snapshot: tuple[Identity, ...] | None = None
        self.secrets: dict[str, bytes] = {}
        """Secrets of access keys by credential, as far as the broker has told them."""
        self._shown: frozenset[tuple[str, str | None]] = frozenset()
        self._first = asyncio.Event()
        self._listeners = Listeners()
        self.listen = self._listeners.add
        """Have a function called after each change, on the loop's thread. Any thread."""

    @property
    def snapshot(self) -> tuple[Identity, ...]:
        """The identities; another object after each change.

        Raises:
            UnavailableError: the broker has not told them yet. Nobody may be served before: all callers would be taken
            for the local user.
        """
        if self._snapshot is None:
            raise UnavailableError("the broker has not told yet who its callers may be; try again later")
        return self._snapshot

    def has(self, name: str, credential: str | None) -> bool:
        """Return whether there is an identity of that name with a credential of that id."""
        return (name, credential) in self._shown

    def on_told(self, told: Sequence[Mapping[str, Any]]) -> None:
        """Take what the broker tells."""
        snapshot = tuple(
            known(Identity, each, credentials=[known(Credential, one) for one in each["credentials"]]) for each in told
        )
        self._accounts.update(snapshot)
        # First: whoever sees the new identities finds their secrets.
        self.secrets = {
            one["id"]: base64.b64decode(one["secret"])
            for each in told
            for one in each["credentials"]
            if "secret" in one
        }
        self._snapshot = snapshot
        self._shown = frozenset((each.name, one.id) for each in self._snapshot for one in each.credentials)
        self._first.set()
        self._listeners.tell()

    def on_lost(self) -> None:
        """Wait no longer: the link has ended."""
        self._first.set()

    async def wait_told(self) -> None:
        """Wait until the broker has told them for the first time.

        Raises:
            UnavailableError: it does not, as one of another release; or the link has ended.
        """
        try:
            await asyncio.wait_for(self._first.wait(), TOLD_S)
        except TimeoutError as error:
            raise UnavailableError(
                f"the broker has not told within {TOLD_S:g} s who its callers may be; allowed: one of this release"
            ) from error
        _ = self.snapshot
