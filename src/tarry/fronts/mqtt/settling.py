"""Settling of deliveries.

A PUBACK acknowledges, one with an error gives back; what is too large for the client is rejected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from tarry.api.consuming import Subscription
from tarry.base.errors import TarryError
from tarry.base.event_loop import post
from tarry.base.log_limiter import LogLimiter
from tarry.base.types import Int64s
from tarry.fronts.kit.settling import AckGatherer, AckOutcome, Entries, lease_columns

_failed = LogLimiter(logging.getLogger(__name__), logging.WARNING)
WINDOW_S = 0.005
"""Seconds for which acknowledgements gather: no client waits for an answer to them."""


@dataclass(slots=True, eq=False)
class HeldMessage:
    """A message that a client has, and its lease."""

    subscription: Subscription
    lease: int
    offset: int


class Settling:
    """On the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._acks: AckGatherer[HeldMessage, None] = AckGatherer(
            loop, _on_settled, window_s=WINDOW_S, failures_only=True
        )

    def acknowledge(self, held: HeldMessage) -> None:
        """Settle a message for good."""
        group = held.subscription.group
        self._acks.add(group, held, None, urgent=group.waits_for_acks)

    def fail(self, held: HeldMessage, reason: str) -> None:
        """Give a message back, to come again after the group's back-off."""
        self._settle(
            held, lambda lease, offset: held.subscription.group.nack(lease, offset, None, self._on_result, reason)
        )

    def reject(self, held: HeldMessage) -> None:
        """Make a message a dead letter: this client can never have it."""
        self._settle(held, lambda lease, offset: held.subscription.group.reject(lease, offset, self._on_result))

    def _settle(self, held: HeldMessage, settle: Callable[[Int64s, Int64s], int]) -> None:
        try:
            settle(*lease_columns([held]))
        except TarryError as error:
            _on_settled([], error)

    def flush(self) -> None:
        """Hand over what has gathered: before its subscription ends, which gives back what is not settled."""
        self._acks.flush()

    def _on_result(self, error: TarryError | None) -> None:
        if error is not None:
            post(self._loop, _on_settled, [], error)


def _on_settled(entries: Entries[HeldMessage, None], outcome: AckOutcome) -> None:
    if isinstance(outcome, TarryError):
        _failed.say("messages that MQTT clients have settled may come again: %s", outcome)
