"""The owners of access tokens, by the secret that a client shows."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from tarry.api.access import EVERYTHING, AccessToken, digest_of
from tarry.api.local import AnyBroker


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of a secret: the tokens that have it, by namespace."""

    tokens: Mapping[str, AccessToken]

    @property
    def for_everything(self) -> bool:
        """True if it may do everything."""
        return EVERYTHING in self.tokens

    def token_for(self, namespace: str) -> AccessToken | None:
        """Return the token that lets it into a namespace; None: it is kept out."""
        return self.tokens.get(namespace) or self.tokens.get(EVERYTHING)


class KnownTokens:
    """Follows the broker's tokens: a change holds for the next look-up. On one thread."""

    def __init__(self, broker: AnyBroker) -> None:
        self._broker = broker
        self._seen: tuple[AccessToken, ...] = ()
        self._by_digest: dict[str, Identity] = {}

    def identify(self, secret: str) -> Identity | None:
        """Return the identity behind this secret; None: no token has it."""
        if self._broker.access_tokens is not self._seen:
            self._look()
        digest = digest_of(secret)
        # The time of a look-up by hash reveals hashes at most, and nobody can choose those; the rest is compared in
        # constant time.
        identity = self._by_digest.get(digest)
        if identity is None:
            return None
        return identity if all(hmac.compare_digest(t.digest, digest) for t in identity.tokens.values()) else None

    def _look(self) -> None:
        self._seen = self._broker.access_tokens
        by_digest: dict[str, dict[str, AccessToken]] = {}
        for token in self._seen:
            by_digest.setdefault(token.digest, {})[token.namespace] = token
        self._by_digest = {digest: Identity(tokens) for digest, tokens in by_digest.items()}
