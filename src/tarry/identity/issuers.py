"""The providers whose tokens a broker takes, by its settings."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple, Self

from tarry.api.audit import Reloaded
from tarry.base.addresses import AddressPolicy
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError
from tarry.base.issuer_settings import IssuerSettings, name_of
from tarry.base.issuer_table import parse_issuers
from tarry.base.listeners import Listeners
from tarry.identity.jwt import JwtIssuer
from tarry.identity.jwt_fetching import START_S, FetchedKeys
from tarry.identity.jwt_keys import FileKeys, KeySource
from tarry.outbound.tls import client_context


class PublishedIssuer(NamedTuple):
    """A provider as workers are told of it: nothing of it is secret."""

    url: str
    audience: str
    keys: dict[str, Any] | None
    """Public keys, as a JWKS; None: they have not come yet."""

    def fields(self) -> dict[str, Any]:
        """Return what is told."""
        return self._asdict()

    def reloaded(self) -> Reloaded:
        """Return what the audit log has of its keys when they have changed."""
        keys = json.dumps(self.keys, sort_keys=True).encode()
        return Reloaded(self.url, {"keys_sha256": sha256(keys).hexdigest()})


class Issuers:
    """The providers. Any thread."""

    def __init__(
        self,
        settings: Sequence[IssuerSettings],
        clock: Clock,
        policy: AddressPolicy | None = None,
        ca_file: str | None = None,
    ) -> None:
        """Read keys that are in files; others are fetched by :meth:`begin`.

        ``policy``: addresses at which keys are fetched; ``ca_file``: authorities that are trusted there beside the
        system's.

        Raises:
            InvalidArgumentError: a file has no keys or no authorities, or a package is missing.
        """
        self._names = {each.name: each.issuer for each in settings}
        self._listeners = Listeners()
        self.listen = self._listeners.add
        """Have a function called after each change of keys, in whichever thread: see :meth:`Listeners.add`."""
        self._clock = clock
        self._lock = threading.Lock()
        self._policy, self._ca_file = policy or AddressPolicy(setting="jwt"), ca_file
        if ca_file is not None:
            client_context(ca_file, f"{self._policy.setting}_ca_file")  # else each fetch would find out, too late
        self._fetched: list[FetchedKeys] = []
        self.all = tuple(JwtIssuer(each.issuer, each.audience, self._source(each), clock) for each in settings)
        """The providers; none: no tokens are taken."""
        self.published: tuple[PublishedIssuer, ...] = ()
        """The same, as workers are told: another object after each change."""
        self._publish()

    def begin(self) -> None:
        """Fetch the keys that are fetched: a start waits a moment for those, and goes on without."""
        self.look()
        until_s = time.monotonic() + START_S
        for fetched in self._fetched:
            fetched.wait_first(until_s - time.monotonic())

    @classmethod
    def of(cls, config: Config, clock: Clock) -> Self:
        """Make the providers of a broker's settings.

        Raises:
            InvalidArgumentError: they contradict each other; or as above.
        """
        return cls(settings_of(config), clock, policy_of(config), config.jwt_ca_file)

    def find(self, named: str | None) -> str:
        """Return how the tokens of a provider name it; ``named``: that, or its name in the settings.

        None: the only one.

        Raises:
            InvalidArgumentError: there is no such one, or there are several.
        """
        if not self._names:
            raise InvalidArgumentError(
                "this broker takes no JSON Web Tokens; allowed with the settings jwt_issuer and jwt_audience, or "
                "jwt_issuers"
            )
        allowed = ", ".join(f"{name} ({url})" for name, url in self._names.items())
        if named is None:
            if len(self._names) > 1:
                raise InvalidArgumentError(f"issuer is not given, and there are several providers; allowed: {allowed}")
            return next(iter(self._names.values()))
        if named not in self._names.values() and named not in self._names:
            raise InvalidArgumentError(f"issuer is {named!r:.300}; allowed: {allowed}")
        return self._names.get(named, named)

    def look(self) -> None:
        """Have newer keys looked for, where it is time."""
        for issuer in self.all:
            issuer.look()

    def ask_again(self, url: str) -> None:
        """Have newer keys of a provider looked for: a worker was shown a token with an unknown one."""
        for issuer in self.all:
            if issuer.url == url:
                issuer.ask_again()

    def close(self) -> None:
        """Fetch no more keys."""
        for issuer in self.all:
            issuer.close()

    def _source(self, settings: IssuerSettings) -> KeySource:
        if settings.keys_file is not None:
            return FileKeys(settings.keys_file, self._clock, self._on_change)
        fetched = FetchedKeys(settings, self._policy, self._ca_file, self._clock, self._on_change)
        self._fetched.append(fetched)
        return fetched

    def _on_change(self) -> None:
        self._publish()
        self._listeners.tell()

    def _publish(self) -> None:
        with self._lock:  # of two threads, the one that has read older keys might write last
            self.published = tuple(
                PublishedIssuer(each.url, each.audience, None if each.keys is None else dict(each.keys.as_dict()))
                for each in self.all
            )


def policy_of(config: Config) -> AddressPolicy:
    """Return the addresses at which providers may be."""
    return AddressPolicy.of(config.jwt_private_addresses, "all", "jwt")


def settings_of(config: Config) -> Sequence[IssuerSettings]:
    """Return the providers that the settings name.

    Raises:
        InvalidArgumentError: they contradict each other.
    """
    found = [*_only(config), *parse_issuers(config.jwt_issuers)]
    for taken in ([each.name for each in found], [each.issuer for each in found]):
        for one in taken:
            if taken.count(one) > 1:
                raise InvalidArgumentError(
                    f"two providers have the name or the issuer {one!r:.300} (jwt_issuer, jwt_issuers); allowed: one"
                )
    return found


def _only(config: Config) -> Sequence[IssuerSettings]:
    """Return the provider of the settings that are for one."""
    given = {
        "jwt_issuer": config.jwt_issuer,
        "jwt_audience": config.jwt_audience,
        "jwt_keys_file": config.jwt_keys_file,
        "jwt_keys_url": config.jwt_keys_url,
        "jwt_client_id": config.jwt_client_id,
        "jwt_client_secret_file": config.jwt_client_secret_file,
    }
    if not any(given.values()):
        return ()
    if not (config.jwt_issuer and config.jwt_audience):
        shown = ", ".join(f"{name} is {value!r}" for name, value in given.items())
        raise InvalidArgumentError(
            f"{shown}; allowed: jwt_issuer and jwt_audience, with any of the others or without, or none"
        )
    one = IssuerSettings(
        name_of(config.jwt_issuer),
        config.jwt_issuer,
        config.jwt_audience,
        config.jwt_keys_file,
        config.jwt_keys_url,
        config.jwt_client_id,
        config.jwt_client_secret_file,
        config.jwt_scopes,
    )
    return (one,)
