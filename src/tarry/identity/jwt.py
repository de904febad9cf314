"""JSON Web Tokens of an OIDC provider: signed, for this broker, and good now.

The provider's public keys are in a file (JWKS), which is read again when it changes. Only algorithms with public keys
are taken, so no key of the file is ever the secret of an HMAC, and "none" is no signature.
"""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tarry.api.issuers import VerifiedToken
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError, UnauthenticatedError
from tarry.base.extras import missing_extra

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
LEEWAY_S = 30
"""Seconds by which the provider's clock may be ahead or behind."""
TOKEN_CHARS_MAX = 16 << 10
LOOK_MS = 1000
"""Milliseconds between looks at the file, which are made when tokens come."""
_SECONDS_MAX = 1 << 40
"""Instants are before this: a number that is none, or without an end, is refused."""


class JwtIssuer:
    """The provider that the settings name. Any thread."""

    def __init__(self, url: str, audience: str, keys: str, clock: Clock) -> None:
        """Read the keys; ``url`` is what tokens have as ``iss``.

        Raises:
            InvalidArgumentError: the file has none.
        """
        self.url = url
        self._audience, self._path, self._clock = audience, Path(keys), clock
        self._lock = threading.Lock()
        self._looked_ms = clock.now_ms()
        self._stamp = self._stamp_now()
        self.keys = self._read()
        """Another object when the file was read again: what was verified before is verified anew."""

    @classmethod
    def of(cls, config: Config, clock: Clock) -> JwtIssuer | None:
        """Return the provider of the settings; None: there is none.

        Raises:
            InvalidArgumentError: they are not all given, the file has no keys, or a package is missing.
        """
        given = {
            "jwt_issuer": config.jwt_issuer,
            "jwt_audience": config.jwt_audience,
            "jwt_keys_file": config.jwt_keys_file,
        }
        if not any(given.values()):
            return None
        if not (config.jwt_issuer and config.jwt_audience and config.jwt_keys_file):
            shown = ", ".join(f"{name} is {value!r}" for name, value in given.items())
            raise InvalidArgumentError(f"{shown}; allowed: all of them, or none")
        return cls(config.jwt_issuer, config.jwt_audience, config.jwt_keys_file, clock)

    def look(self) -> KeySet:
        """Return the keys of the file as it is now, or of the last good one."""
        now_ms = self._clock.now_ms()
        with self._lock:
            if abs(now_ms - self._looked_ms) >= LOOK_MS:
                self._looked_ms = now_ms
                if (stamp := self._stamp_now()) != self._stamp:
                    self._stamp = stamp
                    self.keys = self._read_again()
            return self.keys

    def verify(self, token: str) -> VerifiedToken:
        """Return a token that is signed by the provider, for this broker, and good now.

        Raises:
            UnauthenticatedError: it is not; the text says what is wrong, and nothing of the token's content.
        """
        from joserfc import errors, jwt

        if len(token) > TOKEN_CHARS_MAX:
            raise _refused(f"it has {len(token)} characters, and {TOKEN_CHARS_MAX} are allowed")
        keys, now_ms = self.look(), self._clock.now_ms()
        registry = jwt.JWTClaimsRegistry(
            now=now_ms // 1000,
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self.url},
            aud={"essential": True, "value": self._audience},
            exp={"essential": True},
        )
        try:
            claims = jwt.decode(token, keys, algorithms=ALGORITHMS).claims
            registry.validate(claims)
        except errors.JoseError as error:
            raise _refused(f"{error.description or error.error:.300}") from error
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise _refused("it cannot be read") from error
        expires_s = claims["exp"]
        if isinstance(expires_s, bool) or not isinstance(expires_s, int | float) or not 0 < expires_s < _SECONDS_MAX:
            raise _refused("exp is no instant")
        return VerifiedToken(claims, int((expires_s + LEEWAY_S) * 1000))

    def _stamp_now(self) -> tuple[int, ...]:
        try:
            stat = self._path.stat()
        except OSError as error:
            return (error.errno or 0,)
        return stat.st_mtime_ns, stat.st_ino, stat.st_size

    def _read_again(self) -> KeySet:
        try:
            return self._read()
        except InvalidArgumentError as error:
            _log.error("the last good keys stay in use: %s", error)
            return self.keys

    def _read(self) -> KeySet:
        try:
            from joserfc.errors import JoseError
            from joserfc.jwk import KeySet
        except ImportError as error:
            raise InvalidArgumentError(missing_extra("jwt_issuer", "jwt", error)) from error
        allowed = "allowed: a JSON Web Key Set, with public keys"
        try:
            content = json.loads(self._path.read_bytes())
            public = [key for key in content["keys"] if key.get("kty") != "oct" and key.get("use") in (None, "sig")]
            return KeySet.import_key_set({"keys": public})
        except OSError as error:
            raise InvalidArgumentError(f"jwt_keys_file {self._path}: {error.strerror or error}; {allowed}") from error
        except (JoseError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidArgumentError(f"jwt_keys_file {self._path} has no keys; {allowed}") from error


def _refused(why: str) -> UnauthenticatedError:
    return UnauthenticatedError(
        f"the JSON Web Token that was shown is not taken: {why}; allowed: one of the issuer and for the audience of "
        "the broker's settings, with exp, signed by a key of jwt_keys_file"
    )
