"""``tarry demo``: a year of real flight departures through a real broker that is killed on the way.

``flights`` is the data · ``replay`` schedules it · ``watch`` consumes it, in a process of its own · ``server`` is the
broker's process, and its kill · ``monitor`` looks at it meanwhile · ``story`` does all this in order, ``screen``
tells of it. ``account`` compares what was accepted with what was delivered, ``facts`` is what else is to be told,
``report`` and ``picture`` show it · ``main`` is the whole.
"""

from __future__ import annotations

from tarry.demo.main import run

__all__ = ["run"]
