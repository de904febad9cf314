"""The rule that somebody who may change identities can always show who it is.

A credential counts while it has not expired, and if a port takes it by which identities can be changed: a token always;
a JSON Web Token with its provider, one of whichever there are, in the settings; a certificate where clients are asked
for one; an access key never, since RocketMQ's and MQTT's ports change no identities.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from tarry.api.identities import Credential, Identity
from tarry.api.needs import Right
from tarry.base.delay import format_ms
from tarry.base.errors import InvalidArgumentError
from tarry.identity.rights import Rights

log = logging.getLogger(__name__)


@dataclass(slots=True)
class WaysIn:
    """The kinds of credentials of those who may change identities of this broker."""

    issuers: frozenset[str] = frozenset()
    """The providers whose JSON Web Tokens are taken."""
    takes_certificates: bool = True
    """False where no port asks its clients for certificates."""

    def check(self, former: Iterable[Identity], changed: Iterable[Identity], now_ms: int) -> None:
        """Refuse a change after which nobody could be known who may change identities.

        If that was so before, it is not the change that does it: whoever makes it has got in by ``admin.token``.

        Raises:
            InvalidArgumentError: it is refused.
        """
        known = [each for each in changed if each.credentials]
        before = [each for each in former if each.credentials]
        if not known or self._of_admins(known, now_ms) or (before and not self._of_admins(before, now_ms)):
            return
        raise InvalidArgumentError(
            "nobody who has a credential would have the right admin, so nobody could change identities; "
            'allowed: first an identity with the grant "admin" and a credential that is taken now: a token, a name in '
            "a certificate (with tls_client_ca), or a claim of a provider's tokens (with jwt_issuer, jwt_issuers)"
        )

    def warn(self, identities: Iterable[Identity], now_ms: int) -> None:
        """Log if all that is left of them expires."""
        known = [each for each in identities if each.credentials]
        ends = [each.expires_ms for each in self._of_admins(known, now_ms)]
        if not known:
            return
        if not ends:
            log.warning("no credential with the right admin is taken any more; admin.token in the data directory is")
        elif None not in ends:
            last = max(end for end in ends if end is not None)
            log.warning(
                "the last credential with the right admin expires at %s; make another before (tarry identity token). "
                "Behind that, admin.token in the data directory is one",
                format_ms(last),
            )

    def _of_admins(self, identities: Iterable[Identity], now_ms: int) -> list[Credential]:
        return [
            credential
            for identity in identities
            if _is_admin(identity)
            for credential in identity.credentials
            if self._is_taken(credential, now_ms)
        ]

    def _is_taken(self, credential: Credential, now_ms: int) -> bool:
        if credential.expires_ms is not None and credential.expires_ms <= now_ms:
            return False
        match credential.kind:
            case "token":
                return True
            case "jwt":
                return credential.issuer in self.issuers
            case "certificate":
                return self.takes_certificates
            case "access_key" | "anonymous":
                return False


def _is_admin(identity: Identity) -> bool:
    # Most identities have no such line, and to read the lines of all of them takes time.
    return any(Right.ADMIN.value in line for line in identity.grants) and Rights.of(identity.grants).is_admin
