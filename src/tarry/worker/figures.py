"""Counters of a worker: how its messages ended, and how long that took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tarry.worker.outcomes import Ending


@dataclass(slots=True)
class HandlerFigures:
    """Of one handler, since it began. In the loop."""

    topic: str
    group: str
    ended: dict[Ending, int] = field(default_factory=lambda: dict.fromkeys(Ending, 0))
    busy_s: float = 0.0
    """Seconds in which messages were handled, each counted for itself."""
    in_work: int = 0
    is_served: bool = False
    """The broker is there, and hands out messages."""

    def add(self, other: HandlerFigures) -> None:
        """Add what was counted elsewhere."""
        for ending, count in other.ended.items():
            self.ended[ending] += count
        self.busy_s += other.busy_s

    def as_json(self) -> dict[str, Any]:
        """Return them for another process."""
        return {
            "topic": self.topic,
            "group": self.group,
            "ended": {str(ending): count for ending, count in self.ended.items()},
            "busy_s": round(self.busy_s, 6),
            "in_work": self.in_work,
            "is_served": self.is_served,
        }
