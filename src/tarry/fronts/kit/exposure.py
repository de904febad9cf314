"""The setting of ports without authentication, and the port of one front by it."""

from __future__ import annotations

import logging

from pydantic import Field

from tarry.base.config import Config
from tarry.base.exposure import check_exposure
from tarry.base.setting_types import Listeners
from tarry.fronts.kit.settings import FrontSettings

log = logging.getLogger(__name__)


class ExposureSettings(FrontSettings):
    """Ports that may be open to other machines; part of the broker's configuration."""

    insecure_open: Listeners = Field(
        "", description='Ports without authentication that may be open to other machines: "flight", "link".'
    )


def check_exposed(listener: str, address: str, config: Config) -> None:
    """Raise an error if other machines reach a port, and the setting does not name it.

    Raises:
        InvalidArgumentError: they do.
    """
    check_exposure(listener, address, ExposureSettings.of(config).insecure_open)


def warn_exposed(listener: str, address: str) -> None:
    """Log that a port is open to other machines."""
    log.warning(
        "insecure_open: %s is open at %s to whoever reaches it, and asks nobody who they are", listener, address
    )
