"""Logins at a provider that have begun: nothing of them is kept here, all is in a cookie.

The cookie has 256 random bits, when and for which provider the login began, and the page to go on with. What the
provider gets (state, nonce, the hash of the verifier) is derived from the whole cookie by a key of this process. So who
changes anything in the cookie has another state, and no state is of two browsers.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
from dataclasses import dataclass

from tarry.base.base64url import base64url

ATTEMPT_MS = 600_000
"""Milliseconds that somebody has to log in at the provider."""
AFTER_CHARS_MAX = 1500
"""Longest address to go on with; a browser keeps cookies of 4096 bytes."""
COOKIE_CHARS_MAX = 4000


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """One login that has begun."""

    cookie: str
    state: str
    nonce: str
    verifier: str
    after: str
    """Page to go on with."""

    def has_state(self, state: str) -> bool:
        """Return whether an answer of the provider is to this login."""
        return hmac.compare_digest(state.encode(errors="replace"), self.state.encode())


class LoginAttempts:
    """Makes and reads the cookies. A process that has been started again knows none of the former one's."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def begin(self, provider: str, after: str, now_ms: int) -> LoginAttempt:
        """Begin a login at a provider."""
        after = after if len(after) <= AFTER_CHARS_MAX else "/"
        said = json.dumps([secrets.token_urlsafe(32), now_ms, provider, after])
        return self._attempt(_text(said.encode()), after)

    def find(self, cookie: str | None, provider: str, now_ms: int) -> LoginAttempt | None:
        """Return the login that a cookie is of; None: it is none of this provider, or too old.

        Only its state tells whether the cookie was made here.
        """
        if cookie is None or len(cookie) > COOKIE_CHARS_MAX:
            return None
        try:
            _, begun_ms, named, after = json.loads(base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4)))
        except (ValueError, TypeError, RecursionError):
            return None
        if not isinstance(begun_ms, int) or not isinstance(after, str) or named != provider:
            return None
        return self._attempt(cookie, after) if 0 <= now_ms - begun_ms < ATTEMPT_MS else None

    def _attempt(self, cookie: str, after: str) -> LoginAttempt:
        state, nonce, verifier = (
            _text(hmac.digest(self._key, f"{use}\0{cookie}".encode(), "sha256"))
            for use in ("state", "nonce", "verifier")
        )
        return LoginAttempt(cookie, state, nonce, verifier, after)


def _text(data: bytes) -> str:
    return base64url(data).rstrip("=")
