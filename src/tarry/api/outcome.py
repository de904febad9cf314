"""Outcome of an attempt to cancel or to reschedule a message: one definite answer of four."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tarry.message.receipt import Receipt


class Outcome(StrEnum):
    """Outcome of an attempt to cancel or reschedule one message."""

    DONE = "done"
    """It was pending, and no consumer will ever get it (at its former time, if it was rescheduled)."""
    DELIVERED = "delivered"
    """It was due, and had been handed to its topic's queue before.

    Or its late-message policy had dropped it.
    """
    CANCELLED = "cancelled"
    """It had been cancelled, replaced or rescheduled before."""
    UNKNOWN = "unknown"
    """Nothing is known of it: it never was, or its end is longer ago than the retention."""


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """``receipt`` is that of the message at its new time, where the outcome is "done"; else None."""

    outcome: Outcome
    receipt: Receipt | None = None
