"""A bound for the number of topics: naming one makes it, and its data is kept and written down."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.errors import InvalidMessageError
from tarry.intake import Intake
from tarry.queue import ReadyLog

FEW_ROWS = 64
"""Batches of so many are looked at only near the bound: those of one moment may go beyond it by that."""
COMING_S = 60.0
"""Time for which a topic that was to be made counts if nothing came of it."""


@dataclass(eq=False)
class TopicBound:
    """A bound for the number of topics, ``most``. Any thread."""

    most: int
    _intake: Intake
    _ready: ReadyLog
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _coming: dict[str, float] = field(default_factory=dict)
    """Topics of batches that were let pass, and since when."""

    def check(self, topics: pa.Array) -> None:
        """Let the topics of a batch pass; those that are new are few enough.

        Raises:
            InvalidMessageError: they are not. Topics that are there are never refused.
        """
        rows = len(topics)
        if rows <= FEW_ROWS and len(self._intake.accepted) + len(self._coming) + rows <= self.most:
            return
        self.check_names(topics.to_pylist() if rows <= FEW_ROWS else pc.unique(topics).to_pylist())

    def check_names(self, names: Iterable[str]) -> None:
        """Check names as :meth:`check` does."""
        accepted, ready = self._intake.accepted, self._ready.topics
        new = {name for name in names if name not in accepted and name not in ready}
        if not new:
            return
        now_s = time.monotonic()
        with self._lock:
            for name, since_s in list(self._coming.items()):
                if name in accepted or now_s - since_s > COMING_S:
                    del self._coming[name]
            new -= self._coming.keys()
            there = max(len(accepted), len(ready)) + len(self._coming)
            if there + len(new) > self.most:
                raise InvalidMessageError(
                    f"topic {min(new)!r} is new, one of {len(new)}, and there are {there} topics; "
                    f"allowed: {self.most} (topics_max)"
                )
            self._coming.update(dict.fromkeys(new, now_s))
