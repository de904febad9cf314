"""Declaration of the pusher, which listens nowhere."""

from __future__ import annotations

from tarry.fronts.kit.front import Front
from tarry.fronts.push.settings import PushSettings

PUSH = Front(
    name="push",
    settings=PushSettings,
    title="push",
    start="tarry.fronts.push.front:start",
    extra="push",
    asks_callers=True,
)
