"""The wheel: messages due within the horizon, in memory, and the loader that keeps it filled.

A worked example. The horizon is 60 s, slots are 1 s, it is 12:00:00.000, and ``loaded`` is (12:01:00.000, 0).

* A message due 12:00:40.123 is accepted: below ``loaded``, so its row goes to slot 12:00:40, as a slice of the batch
  that arrived.
* One due 12:05 is accepted: not below ``loaded``, so it stays in the intake alone (and soon in the store).
* At 12:00:39 slot 12:00:40 is made *near*: its slices become one run sorted by (due time, seq). A message that arrives
  now for 12:00:40.500 becomes a small run of its own.
* At 12:00:40.123 the dispatcher takes from each run the prefix that is due, merges the prefixes, and hands them to the
  ready log.
* At 12:00:15 the loader moves ``loaded`` to 12:01:15 and reads what the intake and the store hold in between.
* 5 million messages due at 12:00:50 arrive: more than the wheel may hold. It is cut at some (12:00:50.000, seq):
  ``loaded`` goes back to that key, the rest is in the intake anyway, and the loader reads on from there as the
  dispatcher makes room.
"""

from tarry.wheel.due import Due
from tarry.wheel.handed import PerhapsHanded
from tarry.wheel.loader import Loader
from tarry.wheel.wheel import Wheel

__all__ = ["Due", "Loader", "PerhapsHanded", "Wheel"]
