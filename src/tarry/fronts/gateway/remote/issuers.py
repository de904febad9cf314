"""Providers of JSON Web Tokens that the broker has told a worker of, with their public keys."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tarry.base.clock import Clock
from tarry.base.errors import InvalidArgumentError
from tarry.identity.jwt import JwtIssuer
from tarry.identity.jwt_keys import ToldKeys

log = logging.getLogger(__name__)

ASK_MS = 1000
"""Milliseconds between two questions for newer keys of a provider: strangers can cause them."""


class RemoteIssuers:
    """The providers, as the broker told them last. On the loop's thread; :attr:`all` on any."""

    def __init__(self, clock: Clock, ask: Callable[[str], None]) -> None:
        """``ask`` asks the broker for newer keys of a provider."""
        self._clock, self._ask = clock, ask
        self._asked_ms: dict[str, int] = {}
        self.all: tuple[JwtIssuer, ...] = ()

    def on_told(self, told: Sequence[Mapping[str, Any]]) -> None:
        """Take what the broker tells; without the packages for it, no such tokens are taken here."""
        try:
            self.all = tuple(
                JwtIssuer(
                    each["url"],
                    each["audience"],
                    ToldKeys(each["keys"], partial(self._ask_again, each["url"])),
                    self._clock,
                )
                for each in told
            )
        except InvalidArgumentError as error:
            self.all = ()
            log.error("no JSON Web Tokens are taken here: %s", error)

    def _ask_again(self, url: str) -> None:
        # Of each provider by itself: who shows tokens in the name of one must not keep out those of another.
        now_ms, asked_ms = self._clock.now_ms(), self._asked_ms.get(url)
        if asked_ms is None or abs(now_ms - asked_ms) >= ASK_MS:
            self._asked_ms[url] = now_ms
            self._ask(url)
