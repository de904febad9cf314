"""JSON Web Tokens of an OIDC provider: signed, for this broker, and good now.

Only algorithms with public keys are taken, so no key of a provider is ever the secret of an HMAC, and "none" is no
signature.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tarry.api.issuers import TOKEN_CHARS_MAX, ProviderLogin, VerifiedToken, details_of, named_issuer
from tarry.base.clock import Clock
from tarry.base.errors import LoginReason, LoginRefusal, UnauthenticatedError
from tarry.identity.jwt_keys import KeySource

if TYPE_CHECKING:
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
LEEWAY_S = 30
"""Seconds by which the provider's clock may be ahead or behind."""
_SECONDS_MAX = 1 << 40
"""Instants are before this: a number that is none, or without an end, is refused."""

_REASON_OF: Mapping[str, LoginReason] = {"iss": "issuer", "aud": "audience"}
"""By a claim that is wrong or missing."""
_UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, RecursionError)


class JwtIssuer:
    """A provider whose tokens are taken. Any thread."""

    def __init__(self, url: str, audience: str, source: KeySource, clock: Clock) -> None:
        """``url`` is what tokens have as ``iss``; ``source`` has the keys."""
        self.url, self.audience = url, audience
        self._source, self._clock = source, clock

    @property
    def keys(self) -> KeySet | None:
        """Its keys, without a look for newer ones; None: they have not come yet."""
        return self._source.keys

    def look(self) -> KeySet | None:
        """Return its keys as they are now: another object after each change."""
        return self._source.look()

    def verify(self, token: str, login: ProviderLogin | None = None) -> VerifiedToken:
        """Return a token that is signed by the provider, for this broker, and good now.

        ``login``: it has to be the ID token of this login instead, for its client.

        Raises:
            UnauthenticatedError: it is not; the text says what is wrong, and nothing of the token's content. Its
                refusal has the token's subject where the provider has signed it.
        """
        if len(token) > TOKEN_CHARS_MAX:
            raise _refused(f"it has {len(token)} characters, and {TOKEN_CHARS_MAX} are allowed")
        keys, now_ms = self.look(), self._clock.now_ms()
        if keys is None:
            raise _refused("the keys of its provider have not come yet, which the broker's log tells more of", "other")
        claims = self._signed(token, keys)
        self._check_claims(claims, self.audience if login is None else login.client, now_ms)
        expires_s, details = claims["exp"], details_of(self.url, claims)
        if isinstance(expires_s, bool) or not isinstance(expires_s, int | float) or not 0 < expires_s < _SECONDS_MAX:
            raise _refused("exp is no instant", "other", details)
        if login is not None:
            _check_login(claims, login, details)
        return VerifiedToken(claims, int((expires_s + LEEWAY_S) * 1000), self.url)

    def _signed(self, token: str, keys: KeySet) -> dict[str, Any]:
        """Return the claims of a token that one of the keys has signed."""
        from joserfc import errors, jwt

        of_key = (
            *(errors.InvalidKeyIdError, errors.BadSignatureError, errors.UnsupportedAlgorithmError),
            *(errors.KeyParameterError, errors.MissingKeyError, errors.MissingAlgorithmError),
            *(errors.ConflictAlgorithmError, errors.InvalidKeyCurveError, errors.InvalidKeyLengthError),
        )
        try:
            return jwt.decode(token, keys, algorithms=ALGORITHMS).claims
        except of_key as error:
            if named_issuer(token) not in (None, self.url):
                raise _refused("it is of another provider (iss)", "issuer") from error
            text = _text_of(error)
            if isinstance(error, errors.InvalidKeyIdError):
                self._source.ask_again()
                text = "it names a key that is not among the provider's"
            raise _refused(text, "signature") from error
        except errors.JoseError as error:
            raise _refused(_text_of(error)) from error
        except _UNREADABLE as error:
            raise _refused("it cannot be read") from error

    def _check_claims(self, claims: dict[str, Any], audience: str, now_ms: int) -> None:
        from joserfc import errors, jwt

        registry = jwt.JWTClaimsRegistry(
            now=now_ms // 1000,
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self.url},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
        )
        details = details_of(self.url, claims)
        try:
            registry.validate(claims)
        except errors.ExpiredTokenError as error:
            raise _refused(_text_of(error), "expired", details) from error
        except errors.ClaimError as error:
            raise _refused(_text_of(error), _REASON_OF.get(error.claim, "other"), details) from error
        except _UNREADABLE as error:
            raise _refused("it cannot be read", "other", details) from error

    def ask_again(self) -> None:
        """Have newer keys looked for soon: see :meth:`KeySource.ask_again`."""
        self._source.ask_again()

    def close(self) -> None:
        """Look for no more keys."""
        self._source.close()


def _check_login(claims: Mapping[str, Any], login: ProviderLogin, details: Mapping[str, str]) -> None:
    """Refuse an ID token of another login or client (OpenID Connect Core, 3.1.3.7)."""
    if not hmac.compare_digest(str(claims.get("nonce")).encode(errors="replace"), login.nonce.encode()):
        raise _refused("it is of another login: its nonce is not the one of this", "other", details)
    party, audiences = claims.get("azp"), claims["aud"]
    if (party is not None or (isinstance(audiences, list) and len(audiences) > 1)) and party != login.client:
        raise _refused("it was made for another client (azp)", "audience", details)


def _text_of(error: JoseError) -> str:
    return f"{error.description or error.error:.300}"


def _refused(
    why: str, reason: LoginReason = "not_known", details: Mapping[str, str] | None = None
) -> UnauthenticatedError:
    return UnauthenticatedError(
        f"the JSON Web Token that was shown is not taken: {why}; allowed: one of a provider and for the audience of "
        "the broker's settings, with exp, signed by a key of that provider",
        LoginRefusal(reason, details=details or {}),
    )
