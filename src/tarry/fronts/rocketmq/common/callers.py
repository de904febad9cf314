"""Callers of the RocketMQ fronts: identities by access keys, and the keys of ``rocketmq_keys``.

Without identities, the file's keys are asked for if there is one, and whoever has one may do everything. Beside
identities, each of them is a caller with all rights on topics, named as its key.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tarry.api.local import AnyBroker
from tarry.api.needs import OF_TOPICS
from tarry.base.errors import LoginRefusal, TarryError, UnauthenticatedError
from tarry.fronts.kit.callers import Callers
from tarry.fronts.kit.peer_proof import certificate_of
from tarry.identity.grants import Grant
from tarry.identity.principal import LOCAL, Principal
from tarry.identity.rights import Rights

_OF_FILE = "rocketmq_keys"
"""Beginning of the credentials of the file's keys: no identity's credential has such an id."""


class SigningKey(NamedTuple):
    """A key that a signature is checked by. Unknown names have one, too, so that they cost the same."""

    principal: Principal | None
    """None: there is no key of that name."""
    secret: bytes
    expires_ms: int | None = None


class SigningCallers:
    """Tells who signs, and whose connections there are. On the loop's thread; made on it.

    ``keys``: secrets by access key, of the file.
    """

    def __init__(self, broker: AnyBroker, loop: asyncio.AbstractEventLoop, keys: Mapping[str, str]) -> None:
        self._broker = broker
        self._callers = Callers(broker, loop, "rocketmq")
        self._authenticator = self._callers.authenticator
        rights = Rights(Grant(right, "*") for right in OF_TOPICS)
        self._of_file = {
            key: (Principal(key, rights, f"{_OF_FILE}:{key}"), secret.encode()) for key, secret in keys.items()
        }
        self._looked: object = None
        self._lacks = False
        self._nobody = SigningKey(None, secrets.token_bytes(32))

    @property
    def asks(self) -> bool:
        """True if callers have to sign."""
        return bool(self._of_file or self._broker.identities)

    @property
    def has_identities(self) -> bool:
        """True if there are identities beside the file's keys."""
        return bool(self._broker.identities)

    @property
    def lacks_secrets(self) -> bool:
        """True if there are access keys by which signatures cannot be checked here."""
        identities = self._broker.identities
        if self._looked is not identities:
            keys = [one.id for each in identities for one in each.credentials if one.access_key is not None]
            self._looked = identities
            self._lacks = any(self._broker.access_secret(id) is None for id in keys)
        return self._lacks

    @property
    def version(self) -> object:
        """Another object after each change of who is known."""
        return self._broker.identities

    def find(self, name: str) -> SigningKey:
        """Return the key of that name; an identity's counts before the file's.

        Raises:
            UnauthenticatedError: it has expired, or its secret is not known here.
        """
        if self._broker.identities:
            key = self._authenticator.by_access_key(name)
            if key is not None:
                return SigningKey(key.principal, key.secret, key.expires_ms)
        of_file = self._of_file.get(name)
        if of_file is None:
            return self._nobody
        return SigningKey(of_file[0] if self._broker.identities else LOCAL, of_file[1])

    def names(self, name: str) -> bool:
        """Return whether there is a key of that name."""
        try:
            return self.find(name).principal is not None
        except UnauthenticatedError:
            return True  # it is not taken here, which is told when the request is whole

    def note_refusal(self, error: Exception, peer: str) -> None:
        """Note a caller at the address ``peer`` whose signature or token was not taken."""
        if isinstance(error, UnauthenticatedError):
            self._authenticator.note_error(error, peer)
        else:
            self._authenticator.note_refusal("other" if isinstance(error, TarryError) else "signature", peer)

    def by_token(self, token: str) -> Principal:
        """Return the caller that shows a token.

        Raises:
            UnauthenticatedError: it is not taken.
        """
        if not self._broker.identities:
            raise UnauthenticatedError("a token was shown, and there are no identities; allowed: a signature")
        return self._authenticator.by_token(token, peer=None)

    def by_certificate(self, proof: object) -> Principal | None:
        """Return the identity that a connection's certificate names, by what the connection has proved.

        None: it has proved nothing by a certificate, or there are no identities.

        Raises:
            UnauthenticatedError: the certificate names no identity.
        """
        names = certificate_of(proof)
        if names is None or not self._broker.identities:
            return None
        return self._authenticator.by_certificate(names)

    @property
    def takes_nothing(self) -> bool:
        """True if who signs nothing, and shows nothing, is let in: see :meth:`Authenticator.by_nothing`."""
        return self._authenticator.takes_nothing

    def by_nothing(self, peer: str) -> Principal | None:
        """Return the identity of who signs nothing, and shows nothing: see :meth:`Authenticator.by_nothing`."""
        return self._authenticator.by_nothing(peer)

    def note_use(self, principal: Principal) -> None:
        """Note that a signature with an access key of an identity was good."""
        if principal.credential is not None:
            self._authenticator.note_use(principal.credential)

    def check_known(self, principal: Principal) -> None:
        """Refuse a caller that has waited and is known no longer.

        Raises:
            UnauthenticatedError: it has to show again who it is.
        """
        if not _is_of_file(principal) and not self._authenticator.is_known(principal):
            raise UnauthenticatedError("the credential was removed or has expired, or its rights have changed")

    def add(
        self,
        connection: object,
        principal: Principal,
        refuse: Callable[[TarryError], None],
        *,
        counts: bool = False,
    ) -> None:
        """Have ``refuse`` called when a connection's caller is known no longer.

        The file's keys are known always. ``counts``: see :meth:`Callers.add`.

        Raises:
            QuotaExceededError: its identity has too many connections.
        """
        if not _is_of_file(principal):
            self._callers.add(connection, principal, refuse, counts=counts)

    def remove(self, connection: object) -> None:
        """Forget a connection that has ended."""
        self._callers.remove(connection)

    def close(self) -> None:
        """Look at callers no more."""
        self._callers.close()


def none_shown(needed: str) -> UnauthenticatedError:
    """Return the refusal of a caller that shows no credential, or an access key without a name."""
    return UnauthenticatedError(f"no credential was shown; needed: {needed}", LoginRefusal("none_shown"))


def _is_of_file(principal: Principal) -> bool:
    return principal.credential is not None and principal.credential.startswith(_OF_FILE)
