"""In the place of the package of that name, for its tests: Tarry's backend with the names that they import."""

from __future__ import annotations

from suite.backend import SuiteBackend


class DatabaseBackend(SuiteBackend):
    """Tarry's, as its tests name it."""
