"""Events of traced messages, and a bounded queue of them: who is late loses spans, never time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tarry.message.trace_context import TraceContext

QUEUED_MAX = 8192
"""Most spans that wait for the collector; about 4 MB."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A message that was handed out, and whose it is. Times in UTC milliseconds."""

    producer: TraceContext
    topic: str
    group: str
    seq: int
    id: str
    body_bytes: int
    due_ms: int
    accepted_ms: int
    handed_ms: int
    attempt: int

    @property
    def ready_ms(self) -> int:
        """The earliest moment at which it could be handed out."""
        return max(self.due_ms, self.accepted_ms)


@dataclass(frozen=True, slots=True)
class WaitSpan:
    """From the acceptance of a message until a group handed it out for the first time."""

    message: Traced


@dataclass(frozen=True, slots=True)
class HandOutSpan:
    """From a hand-out until it ended, and how."""

    message: Traced
    ended_ms: int
    outcome: str
    is_error: bool


class SpanQueue:
    """Spans that wait to be sent. Any thread adds, one takes; nobody waits."""

    def __init__(self, most: int = QUEUED_MAX) -> None:
        self._most = most
        # Appending and popping are atomic. Threads that add at the same moment may exceed the bound by their number.
        self._waiting: deque[WaitSpan | HandOutSpan] = deque()
        self.overflowed = 0
        """Spans that found no room. Threads may count over one another: it is a figure, and a lower bound."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= self._most

    def add(self, span: WaitSpan | HandOutSpan) -> None:
        """Add a span, or count it as dropped."""
        if self.is_full:
            self.overflowed += 1
        else:
            self._waiting.append(span)

    def take(self, most: int) -> list[WaitSpan | HandOutSpan]:
        """Take up to ``most`` of the oldest."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
