"""Declaration of the link."""

from __future__ import annotations

from tarry.fronts.kit.front import Front
from tarry.fronts.link.settings import LinkSettings

LINK = Front(
    name="link",
    settings=LinkSettings,
    title="link",
    start="tarry.fronts.link.front:start",
    check="tarry.fronts.link.front:check",
    extra="http",
    asks_callers=True,
)
