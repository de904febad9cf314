"""The setting of ports without authentication, and the port of one front by it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from tarry.api.identities import ANONYMOUS
from tarry.base.config import Config
from tarry.base.exposure import LISTENERS, check_exposure, exposed, is_exposed, parse_listeners
from tarry.base.setting_types import Listeners
from tarry.fronts.kit.settings import FrontSettings
from tarry.identity.file import asks_callers
from tarry.identity.grants import Grant

if TYPE_CHECKING:  # settings are loaded before Arrow, whose environment is set first
    from tarry.api.local import AnyBroker

log = logging.getLogger(__name__)

_GATEWAYS = "gateways"
"""A gateway has to show what it is."""


class ExposureSettings(FrontSettings):
    """Ports that may be open to other machines; part of the broker's configuration."""

    insecure_open: Listeners = Field(
        "", description='Ports without authentication that may be open to other machines: "flight", "link".'
    )


def check_exposed(listener: str, address: str, config: Config) -> None:
    """Raise an error if other machines reach a port that asks nobody, and the setting does not name it.

    It asks once the broker has an identity.

    Raises:
        InvalidArgumentError: they do.
    """
    if asks_callers(config.data):
        return
    check_exposure(listener, address, ExposureSettings.of(config).insecure_open)


def relying_on_identities(config: Config) -> dict[str, str]:
    """Return the ports, by name, that other machines reach, and that no setting opens to them."""
    opened = parse_listeners(ExposureSettings.of(config).insecure_open)
    addresses = {name: getattr(config, name, None) for name in LISTENERS}
    return {name: address for name, address in exposed(addresses).items() if name not in opened}


def warn_exposed(listener: str, address: str, broker: AnyBroker) -> None:
    """Log that a port is open to other machines, if it asks nobody."""
    if broker.identities:
        return
    log.warning(
        "insecure_open: %s is open at %s to whoever reaches it, and asks nobody who they are", listener, address
    )


class AnonymousWarning:
    """Logs what whoever shows no credential may do at ports that other machines reach. Any thread."""

    def __init__(self, addresses: Mapping[str, str], broker: AnyBroker) -> None:
        """``addresses``: those of all fronts, by their names; behind an address there may be more words."""
        self._broker = broker
        bare = {name: address.partition(" ")[0] for name, address in addresses.items() if name != _GATEWAYS}
        self._ports = ", ".join(f"{name} on {address}" for name, address in bare.items() if is_exposed(address))
        self._said: list[str] = []

    def look(self) -> None:
        """Say it, if it is something else than what was said last."""
        found = next((each for each in self._broker.identities if each.name == ANONYMOUS), None)
        allowed = [] if found is None else [line for line in found.grants if not Grant.parse(line).is_denied]
        said, self._said = self._said, allowed
        if self._ports and allowed and allowed != said:
            log.warning(
                "anonymous: whoever reaches %s and shows no credential may: %s; tarry identity delete anonymous ends "
                "it",
                self._ports,
                "; ".join(allowed),
            )
