"""Gathers acknowledgements: those of a group go in one call, and each caller gets its outcome.

Each hand-over takes a round of the group's journal, however many acknowledgements it has. So those of one turn of the
loop are handed over together, or those of a window if nobody waits for the answer. They stay in order, and are answered
when they are durable.

Handles and their refusals, answers on the wire, nacks and changed leases are left to each front. Nacks and changed
leases are rare, and each has arguments of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from tarry.api.consuming import ConsumerGroup
from tarry.base.errors import TarryError
from tarry.base.event_loop import post
from tarry.base.types import Int64s, Mask

log = logging.getLogger(__name__)


class Leased(Protocol):
    """A delivery that is settled by its lease and offset."""

    @property
    def lease(self) -> int: ...
    @property
    def offset(self) -> int: ...


D = TypeVar("D", bound=Leased)
W = TypeVar("W")
Entries: TypeAlias = list[tuple[D, W]]
"""Deliveries, each with what its front needs to answer for it."""
AckOutcome: TypeAlias = list[bool] | TarryError
"""For each entry, true if its lease was valid; or the error because of which none was settled."""


class HandOver(Enum):
    """Condition for the next hand-over: acknowledgements gather until it holds."""

    FREE = "free"
    """None: a hand-over does not wait for earlier ones."""
    GROUP = "group"
    """The group's last one is durable."""
    ALL = "all"
    """The last ones of all groups are durable."""


class AckGatherer(Generic[D, W]):
    """Acknowledges deliveries of any groups, gathered by group. On the loop's thread.

    ``answer`` is called once for each hand-over, with all its entries and their outcome. It must not raise. If nobody
    waits for answers (``failures_only``), it is called with an error alone: of hand-overs that were not settled, or not
    all of them (StaleLeaseError).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        answer: Callable[[Entries[D, W], AckOutcome], None],
        *,
        hand_over: HandOver = HandOver.FREE,
        window_s: float = 0.0,
        entries_max: int | None = None,
        failures_only: bool = False,
    ) -> None:
        """Make a gatherer that hands over at most ``entries_max`` entries in one call.

        As soon as a group has so many, they are handed over without waiting for the end of the window.
        ``failures_only`` goes with ``HandOver.FREE``: other hand-overs wait until they hear of the last one.
        """
        self._loop = loop
        self._answer = answer
        self._mode = hand_over
        self._window_s = window_s
        self._entries_max = entries_max
        self._failures_only = failures_only
        self._gathered: dict[ConsumerGroup, Entries[D, W]] = {}
        self._under_way: set[ConsumerGroup] = set()
        """Groups whose last hand-over is not durable yet; empty in mode FREE."""
        self._urgent = False
        """True if a caller may be waiting for one of the gathered acknowledgements."""
        self._planned = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self, group: ConsumerGroup, delivery: D, waiting: W, *, urgent: bool = True) -> None:
        """Acknowledge a delivery, at the end of this turn if it is urgent, else within the window."""
        entries = self._gathered.get(group)
        if entries is None:
            entries = self._gathered[group] = []
        entries.append((delivery, waiting))
        self._urgent = self._urgent or urgent
        if len(entries) == self._entries_max:
            self.flush()
        elif not self._planned and (self._urgent or self._timer is None):
            self._plan()

    def flush(self) -> None:
        """Hand over everything that may be handed over now."""
        self._planned = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for group, entries in self._take():
            leases, offsets = lease_columns([delivery for delivery, _ in entries])
            try:
                if self._failures_only:
                    # All at once: an outcome of each would cost a call for each.
                    group.ack(leases, offsets, self._forward_failure(group, entries))
                else:
                    group.ack_each(leases, offsets, self._forward(group, entries))
            except TarryError as error:
                self._on_settled(group, entries, error)
            except Exception as error:
                # Answer the callers that wait, and do not hold up later acknowledgements.
                log.exception("acknowledging %d messages of %s failed", len(entries), group.name)
                failed = TarryError(f"acknowledging failed: {error}; see the server's log")
                self._on_settled(group, entries, failed)

    def _plan(self) -> None:
        if self._planned or (self._mode is HandOver.ALL and self._under_way):
            return
        if self._urgent:
            self._planned = True
            self._loop.call_soon(self.flush)
        elif self._timer is None:
            self._timer = self._loop.call_later(self._window_s, self.flush)

    def _take(self) -> list[tuple[ConsumerGroup, Entries[D, W]]]:
        """Take the entries that may be handed over now. Those left have waited long enough: they are urgent."""
        if self._mode is HandOver.ALL and self._under_way:
            return []
        taken: list[tuple[ConsumerGroup, Entries[D, W]]] = []
        for group in [group for group in self._gathered if group not in self._under_way]:
            entries = self._gathered.pop(group)
            if self._entries_max is not None and len(entries) > self._entries_max:
                self._gathered[group] = entries[self._entries_max :]
                entries = entries[: self._entries_max]
            taken.append((group, entries))
        if self._mode is not HandOver.FREE:
            self._under_way.update(group for group, _ in taken)
        self._urgent = bool(self._gathered)
        return taken

    def _forward(self, group: ConsumerGroup, entries: Entries[D, W]) -> Callable[[Mask | TarryError], None]:
        def on_settled(settled: Mask | TarryError) -> None:
            post(self._loop, self._on_settled, group, entries, settled)

        return on_settled

    def _forward_failure(self, group: ConsumerGroup, entries: Entries[D, W]) -> Callable[[TarryError | None], None]:
        def on_result(error: TarryError | None) -> None:
            if error is not None:  # else waking the loop would cost more than acknowledging
                post(self._loop, self._on_settled, group, entries, error)

        return on_result

    def _on_settled(self, group: ConsumerGroup, entries: Entries[D, W], settled: Mask | TarryError) -> None:
        self._under_way.discard(group)
        if self._gathered:
            self._plan()
        self._answer(entries, settled if isinstance(settled, TarryError) else settled.tolist())


def lease_columns(deliveries: Sequence[Leased]) -> tuple[Int64s, Int64s]:
    """Return the leases and the offsets of deliveries, an array of each, as a group takes them."""
    return np.array([d.lease for d in deliveries], np.int64), np.array([d.offset for d in deliveries], np.int64)
