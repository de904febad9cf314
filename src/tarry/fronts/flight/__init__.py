"""The Arrow Flight front: Tarry's own protocol, described in ``docs/formats-flight.md``.

``wire`` encodes and decodes, for server and client · ``commands`` are the JSON requests · ``server`` dispatches calls ·
``put`` and ``consume`` are the two long-lived streams · ``front`` starts and stops it all · ``core`` is what it needs
of the broker.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tarry.fronts.flight.front import FlightFront

__all__ = ["FlightFront"]


def __getattr__(name: str) -> Any:
    # The client takes ``wire`` from here, and must not load the server, and through it the broker, for it.
    if name == "FlightFront":
        from tarry.fronts.flight.front import FlightFront

        return FlightFront
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
