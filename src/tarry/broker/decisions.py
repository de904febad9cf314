"""Begins the write batches of the intake's writer, and says what would be decided of one message now."""

from __future__ import annotations

from tarry.api.outcome import Outcome
from tarry.base.clock import Clock
from tarry.broker.commands.write_batch import WriteBatch, places
from tarry.names import Entry, Registry
from tarry.wheel import Loader, Wheel


class Decisions:
    """``retention_ms``: for how long it is known what became of messages that were due."""

    def __init__(self, wheel: Wheel, loader: Loader, registry: Registry, clock: Clock, retention_ms: int) -> None:
        self._wheel = wheel
        self._loader = loader
        self._registry = registry
        self._clock = clock
        self._retention_ms = retention_ms

    def begin_batch(self, next_seq: int) -> WriteBatch:
        """For the intake's writer: what is to be decided in one commit, whose first row gets ``next_seq``."""
        now_ms = self._clock.now_ms()
        known_from_ms = max(self._registry.known_from_ms, now_ms - self._retention_ms)
        return WriteBatch(self._wheel, self._loader, self._registry, now_ms, next_seq, known_from_ms)

    def outcome_of(self, entry: Entry) -> Outcome:
        """What cancelling a message would come to now: "done" where it is pending."""
        [outcome] = self.begin_batch(0).outcomes(*places([entry]))
        return outcome
