"""All credentials of identities, by what callers show of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tarry.api.identities import ANONYMOUS, Credential, Identity


class Owned(NamedTuple):
    """A credential, and whose it is."""

    identity: Identity
    credential: Credential


class CredentialIndex:
    """Made anew for each change of identities. Immutable.

    It has what was read already, and no rights: those of most identities are not asked for in most fronts.
    """

    def __init__(self, identities: Iterable[Identity]) -> None:
        self.by_id: dict[str, Owned] = {}
        self.by_digest: dict[str, Owned] = {}
        self.by_access_key: dict[str, Owned] = {}
        self.by_san: dict[str, Owned] = {}
        self.by_claim: list[Owned] = []
        for identity in identities:
            for credential in identity.credentials:
                self._add(Owned(identity, credential))

    def _add(self, owned: Owned) -> None:
        credential = owned.credential
        self.by_id[credential.id] = owned
        if credential.kind == ANONYMOUS:
            return  # there is nothing by which it could be looked up
        if credential.access_key is not None:
            self.by_access_key[credential.access_key] = owned
        elif credential.san is not None:
            self.by_san[credential.san] = owned
        elif credential.claim is not None:
            self.by_claim.append(owned)
        else:
            self.by_digest[credential.digest] = owned
