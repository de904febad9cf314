"""What may be said of a message; imports nothing that is slow."""

from __future__ import annotations

from typing import Literal

OnKeyWay = Literal["replace", "keep", "refuse"]
"""Ways to schedule a message whose key is pending in its topic already."""
LateWay = Literal["deliver", "drop", "dead"]
"""Ways to treat a message that has expired before it was delivered."""
