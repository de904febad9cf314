"""Declaration of the Arrow Flight front."""

from __future__ import annotations

from tarry.fronts.flight.settings import FlightSettings
from tarry.fronts.kit.front import Front

FLIGHT = Front(
    name="flight",
    settings=FlightSettings,
    title="Arrow Flight",
    start="tarry.fronts.flight.front:start",
    check="tarry.fronts.flight.front:check",
    asks_callers=True,
)
