"""Access tokens as credentials: their owners, by the secret that a client shows, and their rights."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tarry.api.access import EVERYTHING, AccessToken, digest_of
from tarry.api.audit import NotesRefusals
from tarry.api.needs import Right
from tarry.identity.grants import Grant
from tarry.identity.principal import Principal
from tarry.identity.rights import Rights

OF_A_NAMESPACE = (Right.PRODUCE, Right.CONSUME, Right.LOOK)
"""Rights of a token on its namespace's topics, ``NAMESPACE/…``, with every group."""


class KnowsTokens(Protocol):
    """A broker, as far as it is needed here."""

    @property
    def access_tokens(self) -> tuple[AccessToken, ...]: ...
    @property
    def refusals(self) -> NotesRefusals: ...


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """The owner of a secret: the tokens that have it, by namespace, and its rights by all of them."""

    tokens: Mapping[str, AccessToken]
    principal: Principal

    @property
    def for_everything(self) -> bool:
        """True if it may do everything."""
        return EVERYTHING in self.tokens

    def token_for(self, namespace: str) -> AccessToken | None:
        """Return the token that lets it into a namespace; None: it is kept out."""
        return self.tokens.get(namespace) or self.tokens.get(EVERYTHING)


class KnownTokens:
    """Follows the broker's tokens: a change holds for the next look-up. On one thread."""

    def __init__(self, broker: KnowsTokens, front: str = "") -> None:
        self._broker, self._front = broker, front
        self._seen: tuple[AccessToken, ...] = ()
        self._by_digest: dict[str, TokenOwner] = {}
        self._by_id: dict[str | None, Principal] = {}

    def identify(self, secret: str) -> TokenOwner | None:
        """Return the owner of this secret; None: no token has it."""
        self._look()
        if not self._by_digest:
            return None
        digest = digest_of(secret)
        # The time of a look-up by hash reveals hashes at most, and nobody can choose those; the rest is compared in
        # constant time.
        owner = self._by_digest.get(digest)
        if owner is None:
            return None
        return owner if all(hmac.compare_digest(t.digest, digest) for t in owner.tokens.values()) else None

    def has(self, principal: Principal) -> bool:
        """Return whether an owner that was known is known still, with the rights that it had."""
        self._look()
        return self._by_id.get(principal.credential) is principal

    def _look(self) -> None:
        tokens = self._broker.access_tokens
        if tokens is self._seen:
            return
        former, self._seen = self._by_id, tokens
        by_digest: dict[str, dict[str, AccessToken]] = {}
        for token in tokens:
            by_digest.setdefault(token.digest, {})[token.namespace] = token
        self._by_digest = {digest: self._owner(own, former) for digest, own in by_digest.items()}
        self._by_id = {owner.principal.credential: owner.principal for owner in self._by_digest.values()}

    def _owner(self, tokens: Mapping[str, AccessToken], former: Mapping[str | None, Principal]) -> TokenOwner:
        grants = tuple(_grants(tokens))
        id = next(iter(tokens.values())).id
        known = former.get(id)
        if known is None or known.rights.grants != grants:
            # No identity has a colon in its name.
            known = Principal(f"token:{id}", Rights(grants), id, None, self._broker.refusals, self._front or None)
        return TokenOwner(tokens, known)


def _grants(namespaces: Iterable[str]) -> Iterator[Grant]:
    for namespace in namespaces:
        if namespace == EVERYTHING:
            yield Grant(Right.ADMIN)
        else:
            yield from (Grant(right, f"{namespace}/*") for right in OF_A_NAMESPACE)
