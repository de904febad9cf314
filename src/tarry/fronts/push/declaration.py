"""Declaration of the pusher, which listens nowhere."""

from __future__ import annotations

from tarry.fronts.kit.front import Front

PUSH = Front(name="push", title="push", start="tarry.fronts.push.front:start", extra="push")
