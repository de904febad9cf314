"""Identities by name, for whoever is trusted to have found out who a caller is: a gateway's worker."""

from __future__ import annotations

from tarry.api.identities import Identity
from tarry.base.errors import UnauthenticatedError
from tarry.identity.authenticator import KnowsIdentities
from tarry.identity.principal import Principal
from tarry.identity.rights import Rights


class NamedPrincipals:
    """Finds principals by name, with the rights that they have now. Any thread."""

    def __init__(self, broker: KnowsIdentities) -> None:
        self._broker = broker
        # Replaced as one, so that a thread never adds to the principals of another snapshot than it has looked at.
        self._found: tuple[tuple[Identity, ...], dict[str, Principal]] = ((), {})

    def find(self, name: str) -> Principal:
        """Return the principal of that name.

        Raises:
            UnauthenticatedError: there is none; perhaps it was deleted a moment ago.
        """
        identities, found = self._broker.identities, self._found
        if found[0] is not identities:
            found = self._found = identities, {}
        principal = found[1].get(name)
        if principal is None:
            identity = next((each for each in identities if each.name == name), None)
            if identity is None:
                raise UnauthenticatedError(f"there is no identity {name!r:.300}; allowed: one that has a credential")
            principal = found[1][name] = self._principal(identity)
        return principal

    def _principal(self, identity: Identity) -> Principal:
        account = self._broker.accounts.of(identity.name)
        return Principal(identity.name, Rights.of(identity.grants), None, account, self._broker.refusals)
