"""Base of the settings that a front declares for itself."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict

from tarry.base.config import Config


class FrontSettings(BaseModel):
    """Settings of a front: fields that :func:`tarry.base.config.composed` adds to those of the broker."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the front's settings among all; the defaults if the broker was opened without any of a front."""
        return config if isinstance(config, cls) else cls()
