"""The providers at which one may log in to the console, by the settings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from starlette.requests import Request

from tarry.base.config import Config
from tarry.base.log_limiter import LogLimiter
from tarry.fronts.http.console.attempts import LoginAttempts
from tarry.fronts.http.console.guard import LOGIN
from tarry.fronts.http.foreign import own_origin
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.settings import HttpSettings
from tarry.identity.code_login import CodeLogin
from tarry.identity.issuers import policy_of, settings_of
from tarry.identity.provider_requests import ANSWER_BYTES_MAX

if TYPE_CHECKING:
    from tarry.outbound.client import HttpClient

log = logging.getLogger(__name__)


class LoginProviders:
    """On the event loop's thread."""

    def __init__(self, logins: Mapping[str, CodeLogin], url: str | None) -> None:
        """``url``: that of the console, for browsers; None: each request of this machine says it."""
        self.logins = logins
        """By the provider's name; none: nobody logs in this way."""
        self.attempts = LoginAttempts()
        self.refused = LogLimiter(log, logging.WARNING)
        self._url = url

    @classmethod
    def of(cls, services: HttpServices) -> Self:
        """Return those of the settings.

        Raises:
            InvalidArgumentError: they contradict each other, or a file has no secret.
        """
        config = services.broker.config
        settings = [each for each in settings_of(config) if each.client_id is not None]
        if not settings:
            return cls({}, None)
        client = _client(config, services)
        logins = {each.name: CodeLogin(each, client, services.broker.clock) for each in settings}
        return cls(logins, HttpSettings.of(config).http_console_url)

    @property
    def beginnings(self) -> list[tuple[str, str]]:
        """Names of the providers, and addresses at which a login begins.

        They have the console's own URL, where it is set: only there does the browser have the cookie on its way back.
        """
        return [(name, f"{self._url or ''}{LOGIN}/{name}") for name in self.logins]

    def origin(self, request: Request) -> str | None:
        """Return the console's origin, as the browser has it; None: it is not known."""
        return self._url or own_origin(request.scope)


def _client(config: Config, services: HttpServices) -> HttpClient:
    """Return the client of all providers, which is closed with the front."""
    from tarry.outbound.client import HttpClient

    client = HttpClient(policy_of(config), config.jwt_ca_file, ANSWER_BYTES_MAX)
    closing: list[asyncio.Task[None]] = []
    services.on_close(lambda _: closing.append(asyncio.ensure_future(client.close())))
    return client
