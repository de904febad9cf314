"""The fronts that the settings of ``tarry serve`` turn on, and the settings that serve none of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tarry.base.errors import InvalidArgumentError
from tarry.fronts.gateway.settings import GatewaySettings
from tarry.fronts.http.settings import HttpSettings
from tarry.fronts.registry import FRONTS

if TYPE_CHECKING:
    from tarry.base.config import Config
    from tarry.fronts.kit.front import Front
    from tarry.fronts.kit.settings import FrontSettings

log = logging.getLogger("tarry.serve")


def wanted_fronts(config: Config) -> list[Front]:
    """Return the fronts that the settings turn on; called before anything is made or opened.

    Settings of fronts that are off are told in the log.

    Raises:
        InvalidArgumentError: one of them must not be started, or there is none for the workers.
    """
    wanted = [front for front in FRONTS if front.is_on(config)]
    workers = GatewaySettings.of(config).workers
    if workers and not any(front.in_worker for front in wanted):
        names = ", ".join(front.name for front in FRONTS if front.in_worker)
        raise InvalidArgumentError(f"workers is {workers}, and none of {names} has an address; allowed: with one, or 0")
    http = HttpSettings.of(config)
    if http.http_admin and not http.http:
        raise InvalidArgumentError(f"http_admin is {http.http_admin}, and http has no address; allowed: with one")
    for front in wanted:
        front.refuse(config)
    for name, fronts in unused_settings(config).items():
        log.warning("%s is set, and does nothing: %s has no address", name, " or ".join(fronts))
    return wanted


def unused_settings(config: Config) -> dict[str, list[str]]:
    """Return settings that do nothing, by name, with the names of their fronts, none of which is on.

    Such that have their default are left out.
    """
    of_settings: dict[type[FrontSettings], list[Front]] = {}
    for front in FRONTS:
        of_settings.setdefault(front.settings, []).append(front)
    unused = {}
    for settings, fronts in of_settings.items():
        if any(front.is_on(config) for front in fronts):
            continue
        names, given = [front.name for front in fronts], settings.of(config)
        for name, field in settings.model_fields.items():
            if name not in names and getattr(given, name) != field.default:
                unused[name] = names
    return unused
