"""Finds out who a caller is, by the credential that it shows."""

from __future__ import annotations

import hmac
import os
from typing import Protocol

from tarry.api.access import digest_of
from tarry.api.identities import Credential, Identity, is_token
from tarry.base.clock import Clock
from tarry.base.errors import UnauthenticatedError
from tarry.identity.grants import Grant
from tarry.identity.principal import LOCAL, Principal
from tarry.identity.rights import EVERYTHING, Rights

_WAYS = "TARRY_TOKEN, or the argument token; see docs/identity.md"
OWNER = Principal("local-admin", EVERYTHING, "user")
"""The user that the broker runs as, by a Unix socket: it may read the data directory anyway."""


class KnowsIdentities(Protocol):
    """A broker, as far as it is needed here."""

    @property
    def identities(self) -> tuple[Identity, ...]: ...
    @property
    def clock(self) -> Clock: ...


class Authenticator:
    """Follows a broker's identities: a change holds for the next call. On one thread."""

    def __init__(self, broker: KnowsIdentities) -> None:
        self._broker = broker
        self._seen: tuple[Identity, ...] = ()
        self._by_digest: dict[str, tuple[Principal, Credential]] = {}
        self._by_id: dict[str, tuple[Principal, Credential]] = {}

    @property
    def asks(self) -> bool:
        """True if callers have to say who they are."""
        return bool(self._broker.identities)

    def by_token(self, token: str | None) -> Principal:
        """Return the caller that shows a token; None: it shows none.

        Raises:
            UnauthenticatedError: it has to show one, or this one is not taken.
        """
        if token is None:
            if self.asks:
                raise UnauthenticatedError(f"this broker asks who calls, and no token was shown; allowed: {_WAYS}")
            return LOCAL
        self._look()
        if not self._seen:
            return LOCAL  # nobody is asked, so it does not matter what a client has kept
        found = self._by_digest.get(digest_of(token))
        # The time of a look-up by hash reveals hashes at most, and nobody can choose those.
        if found is None or not hmac.compare_digest(found[1].digest, digest_of(token)):
            reason = "is not known" if is_token(token) else "is no token: some of it is missing or mistyped"
            raise UnauthenticatedError(f"the token that was shown {reason}; allowed: one that was not removed")
        self._check_expiry(found[1])
        return found[0]

    def by_user(self, user: int) -> Principal | None:
        """Return the caller at the other end of a Unix socket, by its user; None: it has to say more."""
        if not self.asks:
            return LOCAL
        return OWNER if user in (0, os.geteuid()) else None

    @property
    def next_expiry_ms(self) -> int | None:
        """The instant at which a credential expires next; None: none does."""
        self._look()
        now_ms = self._broker.clock.now_ms()
        moments = [c.expires_ms for _, c in self._by_id.values() if c.expires_ms is not None and c.expires_ms > now_ms]
        return min(moments, default=None)

    def is_known(self, principal: Principal) -> bool:
        """Return whether a caller that was known is known still, with the rights that it had."""
        if not self.asks:
            return principal.credential is None
        if principal is OWNER:
            return True
        self._look()
        found = self._by_id.get(principal.credential or "")
        return found is not None and found[0] is principal and not self._is_over(found[1])

    def _check_expiry(self, credential: Credential) -> None:
        if self._is_over(credential):
            raise UnauthenticatedError(f"the credential {credential.id} expired at {credential.expires_ms}")

    def _is_over(self, credential: Credential) -> bool:
        return credential.expires_ms is not None and credential.expires_ms <= self._broker.clock.now_ms()

    def _look(self) -> None:
        identities = self._broker.identities
        if identities is self._seen:
            return
        former = self._by_id
        self._seen, self._by_digest, self._by_id = identities, {}, {}
        for identity in identities:
            rights = Rights(map(Grant.parse, identity.grants))
            for credential in identity.credentials:
                known = former.get(credential.id)
                is_same = (
                    known is not None and known[0].name == identity.name and known[0].rights.grants == rights.grants
                )
                principal = (
                    known[0] if known is not None and is_same else Principal(identity.name, rights, credential.id)
                )
                self._by_digest[credential.digest] = self._by_id[credential.id] = principal, credential
