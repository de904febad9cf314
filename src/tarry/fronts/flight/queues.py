"""Queues by their offsets, for readers that keep their own: ranges, and how far a group has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tarry.api.views import CANCELLED, QUEUED
from tarry.base.errors import InvalidArgumentError
from tarry.fronts.flight.commands import Cancelled, Command, Natural, Queue, Start, parse
from tarry.fronts.flight.core import Core


class QueuesOf(Command):
    """Of which topics; null: of all."""

    topics: list[str] | None = None


class Follow(Command):
    """A group, and where it begins (null: where it stands)."""

    topic: str
    group: str
    start: Start | None = None


class Advance(Command):
    """How far a group has come."""

    topic: str
    group: str
    offset: Natural


class Queues:
    """For one broker."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def actions(self) -> dict[str, tuple[str, Callable[[bytes], Any]]]:
        """What each is for, and what carries it out."""
        return {
            "queue-state": ("first offset and end of queues, durable", self._state),
            "queue-follow": ("where a group stands, which is made if it is new", self._follow),
            "queue-advance": ("settle for a group all below an offset", self._advance),
        }

    def rows(self, command: Queue | Cancelled) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """What a DoGet gives."""
        if command.start > command.end:
            raise InvalidArgumentError(f"start is {command.start}, end {command.end}; allowed: start up to end")
        if isinstance(command, Queue):
            return QUEUED, self._core.read_queue(command.topic, command.start, command.end)
        return CANCELLED, self._core.cancelled_between(command.start, command.end)

    def _state(self, body: bytes) -> dict[str, Any]:
        found = self._core.queue_state(parse(QueuesOf, body).topics)
        return {"topics": {name: {"first": first, "end": end} for name, (first, end) in found.items()}}

    def _follow(self, body: bytes) -> dict[str, int]:
        command = parse(Follow, body)
        return {"offset": self._core.follow_queue(command.topic, command.group, command.start)}

    def _advance(self, body: bytes) -> dict[str, int]:
        command = parse(Advance, body)
        return {"offset": self._core.advance_group(command.topic, command.group, command.offset)}
