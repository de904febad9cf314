"""Tarry's backend of the broker that the suites have, which the environment names: they say no endpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tarry.django import TarryBackend


class SuiteBackend(TarryBackend):
    """See the module."""

    prefix = "suite"

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.settings = replace(self.settings, endpoint=os.environ["ENDPOINT"], prefix=self.prefix)
