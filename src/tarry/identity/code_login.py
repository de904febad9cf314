"""Logins at a provider by authorization code with PKCE: where browsers go, and tokens for codes.

OpenID Connect Core (section 3.1), RFC 7636 (PKCE, with S256 alone), RFC 9207 (the provider names itself).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote_plus, urlencode

from tarry.base.base64url import base64url
from tarry.base.clock import Clock
from tarry.base.errors import (
    InvalidArgumentError,
    OverloadedError,
    TarryError,
    UnauthenticatedError,
    UnavailableError,
)
from tarry.base.issuer_settings import IssuerSettings, check_provider_url
from tarry.identity.provider_requests import discover, json_of, send_form

if TYPE_CHECKING:
    from tarry.outbound.client import HttpClient

KEPT_MS = 300_000
"""Milliseconds for which it is remembered what a provider publishes of itself."""
AGAIN_MS = 5_000
"""Milliseconds in which a provider that did not answer is not asked again: strangers can cause it."""
MEANWHILE_S = 1.0
"""Seconds for which a login waits for new addresses of a provider, where there are former ones."""
REDEEMED_MAX = 16
"""Codes of one provider that are on their way at a time."""
REDEEMED_OF_PEER_MAX = 4
"""Those of them that one peer may have: a provider that hangs does not let it hold up all others."""
CODE_CHARS_MAX = 4096
SECRET_CHARS_MAX = 4096
_CODE = re.compile(rf"[!-~]{{1,{CODE_CHARS_MAX}}}")
_ERROR = re.compile(r"[a-z_]{1,64}")


class ProviderEndpoints(NamedTuple):
    """Addresses of a provider, and its ways."""

    authorization: str
    token: str
    takes_basic: bool
    """True if a client shows its secret in a header; False: in the form."""
    names_itself: bool
    """True if each of its answers to a login says whose it is."""


class CodeLogin:
    """The logins at one provider. On an event loop."""

    def __init__(self, settings: IssuerSettings, client: HttpClient, clock: Clock) -> None:
        """Look for the client's secret, and ask the provider nothing yet.

        Raises:
            InvalidArgumentError: the file has no secret.
        """
        self.name, self.issuer = settings.name, settings.issuer
        self.client_id = settings.client_id or ""
        """Name of this client at the provider."""
        self._settings, self._client, self._clock = settings, client, clock
        self._endpoints: ProviderEndpoints | None = None
        self._asked_ms: int | None = None
        self._failure: TarryError | None = None
        self._asking: asyncio.Task[None] | None = None
        """The question that is on its way, for all who wait for its answer."""
        self._redeemed: Counter[str] = Counter()
        """Codes that are on their way, by peer."""
        self._secret()

    async def address(self, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Return where a browser logs in.

        Raises:
            TarryError: the provider does not say it.
        """
        asked = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._settings.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
        }
        url = (await self._find()).authorization
        return f"{url}{'&' if '?' in url else '?'}{urlencode(asked)}"

    async def is_of_another(self, named: str | None) -> bool:
        """Return whether an answer that names its provider, or does not, is of another one (RFC 9207).

        Raises:
            TarryError: the provider does not say whether it names itself.
        """
        return (await self._find()).names_itself if named is None else named != self.issuer

    async def redeem(self, code: str, redirect_uri: str, verifier: str, peer: str) -> str:
        """Return the ID token for a code, which nobody has verified yet; ``peer`` has brought it.

        Raises:
            UnauthenticatedError: the provider does not take the code.
            OverloadedError: too many are on their way; it was not asked.
            UnavailableError: it does not answer as it should.
        """
        if not _CODE.fullmatch(code):
            raise UnauthenticatedError(f"no code; allowed: 1 to {CODE_CHARS_MAX} visible characters of ASCII")
        if self._redeemed.total() >= REDEEMED_MAX:
            raise OverloadedError(f"{REDEEMED_MAX} logins are on their way at {self.name}; no more are allowed")
        if self._redeemed[peer] >= REDEEMED_OF_PEER_MAX:
            raise OverloadedError(
                f"{REDEEMED_OF_PEER_MAX} logins of {peer} are on their way at {self.name}; no more are allowed"
            )
        self._redeemed[peer] += 1
        try:
            return await self._redeem(code, redirect_uri, verifier)
        finally:
            self._redeemed[peer] -= 1
            self._redeemed += Counter()  # which keeps none of those that have nothing on its way

    async def _redeem(self, code: str, redirect_uri: str, verifier: str) -> str:
        endpoints, secret = await self._find(), self._secret()
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self.client_id,
            "code_verifier": verifier,
        }
        headers: Mapping[str, str] = {}
        if secret is not None and endpoints.takes_basic:
            headers = {"authorization": _basic(self.client_id, secret)}
        elif secret is not None:
            fields["client_secret"] = secret
        status, content = await send_form(self._client, endpoints.token, fields, headers)
        if status != 200:
            why = _error_of(content)
            answer = f"{status} ({why})" if why else f"{status}"
            if 400 <= status < 500:  # whichever error it names: providers differ in what they say of a code
                raise UnauthenticatedError(f"{self.name} does not take the code: it answers {answer}")
            raise UnavailableError(f"{endpoints.token} answers {answer}")
        token = json_of(content, endpoints.token).get("id_token")
        if not isinstance(token, str):
            raise UnavailableError(f"{endpoints.token} answers no id_token; the scopes are {self._settings.scopes!r}")
        return token

    async def _find(self) -> ProviderEndpoints:
        """Return the provider's addresses: the last good ones where it is slow, or fails.

        Raises:
            UnavailableError: there are none.
        """
        if self._asking is None and self._is_time():
            self._asking = asyncio.create_task(self._ask())
        if self._asking is not None:
            # Who goes away, or has waited long enough, does not end the question of the others.
            await asyncio.wait([self._asking], timeout=None if self._endpoints is None else MEANWHILE_S)
        if self._endpoints is None:
            raise UnavailableError(str(self._failure))
        return self._endpoints

    def _is_time(self) -> bool:
        kept_ms = AGAIN_MS if self._failure is not None else KEPT_MS
        # A clock may be set back.
        return self._asked_ms is None or abs(self._clock.now_ms() - self._asked_ms) >= kept_ms

    async def _ask(self) -> None:
        try:
            self._endpoints = _endpoints_of(await discover(self._client, self._settings))
            self._failure = None
        except TarryError as error:
            self._failure = error
        except Exception as error:
            self._failure = UnavailableError(f"{self.issuer} could not be asked: {type(error).__name__}")
            raise  # it is a bug: asyncio tells the log of it
        finally:
            # The pause begins with the answer: else it would be over by the time that a provider has for one.
            self._asked_ms, self._asking = self._clock.now_ms(), None

    def _secret(self) -> str | None:
        """Return the client's secret, as its file has it now; None: it has none.

        Raises:
            InvalidArgumentError: the file has none.
        """
        name = self._settings.client_secret_file
        if name is None:
            return None
        try:
            secret = Path(name).read_text().strip()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise InvalidArgumentError(f"client_secret_file {name!r}: {why}; allowed: a file of a secret") from error
        if not 1 <= len(secret) <= SECRET_CHARS_MAX or not secret.isprintable():
            # The content of the file is not repeated: it would be in the log.
            raise InvalidArgumentError(
                f"client_secret_file {name!r} has {len(secret)} characters, or some that cannot be printed; allowed: "
                f"1 to {SECRET_CHARS_MAX}, in one line"
            )
        return secret


def challenge_of(verifier: str) -> str:
    """Return what a browser carries to the provider of a verifier (RFC 7636: S256)."""
    return base64url(hashlib.sha256(verifier.encode()).digest()).rstrip("=")


def _endpoints_of(told: Mapping[str, Any]) -> ProviderEndpoints:
    authorization, token = (
        check_provider_url(str(told.get(name)), name) for name in ("authorization_endpoint", "token_endpoint")
    )
    ways = told.get("token_endpoint_auth_methods_supported")
    takes_basic = not isinstance(ways, list) or "client_secret_basic" in ways or "client_secret_post" not in ways
    names_itself = told.get("authorization_response_iss_parameter_supported") is True
    return ProviderEndpoints(authorization, token, takes_basic, names_itself)


def _basic(client_id: str, secret: str) -> str:
    """Return the header by which a client shows its secret (RFC 6749, section 2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _error_of(content: bytes) -> str:
    """Return the error that a refusal names, in RFC 6749's form; empty: nothing else is repeated."""
    try:
        named = json.loads(content).get("error")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return named if isinstance(named, str) and _ERROR.fullmatch(named) else ""
