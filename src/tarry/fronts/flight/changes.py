"""The actions that change what was scheduled: cancel, reschedule; and what is pending under a key."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field

from tarry.api.receipt import Receipt
from tarry.api.wire import HANDLES_MAX
from tarry.base.delay import DelayLevel
from tarry.base.errors import InvalidArgumentError
from tarry.fronts.flight.commands import Command, Int64, Natural, parse
from tarry.fronts.flight.core import Core

Texts = Annotated[list[str], Field(max_length=HANDLES_MAX)]

_DELAY_MS_MAX = 10**15
"""Beyond every limit that a broker can have, and within what a timedelta can be."""


class Cancel(Command):
    """By handle."""

    handles: Texts


class CancelKeys(Command):
    """By key."""

    topic: str
    keys: Texts


class FindKey(Command):
    """What is pending under a key."""

    topic: str
    key: str


class Reschedule(Command):
    """``handle``, or ``topic`` and ``key``; and one of the others."""

    handle: str | None = None
    topic: str | None = None
    key: str | None = None
    due_ms: Int64 | None = None
    delay_ms: Natural | None = None
    delay_level: Int64 | None = None

    def when(self) -> dict[str, Any]:
        """The new time, as an argument of the broker's methods."""
        ways = {name: getattr(self, name) for name in ("due_ms", "delay_ms", "delay_level")}
        given = {name: value for name, value in ways.items() if value is not None}
        if len(given) != 1:
            said = ", ".join(given) or "none"
            raise InvalidArgumentError(f"exactly one of {', '.join(ways)} is needed; given: {said}")
        if self.due_ms is not None:
            return {"due": self.due_ms}
        if self.delay_ms is not None:
            return {"delay": timedelta(milliseconds=min(self.delay_ms, _DELAY_MS_MAX))}
        assert self.delay_level is not None
        return {"delay": DelayLevel(self.delay_level)}


class Changes:
    """For one broker."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def actions(self) -> dict[str, tuple[str, Callable[[bytes], Any]]]:
        """What each is for, and what carries it out."""
        return {
            "cancel": ("cancel messages by handle", self._cancel),
            "cancel-keys": ("cancel what is pending under keys of a topic", self._cancel_keys),
            "reschedule": ("move a message, by handle or by key, to another time", self._reschedule),
            "find-key": ("what is pending under a key", self._find_key),
        }

    def _cancel(self, body: bytes) -> dict[str, Any]:
        return {"outcomes": list(self._core.cancel_many(parse(Cancel, body).handles))}

    def _cancel_keys(self, body: bytes) -> dict[str, Any]:
        command = parse(CancelKeys, body)
        return {"outcomes": list(self._core.cancel_keys(command.topic, command.keys))}

    def _reschedule(self, body: bytes) -> dict[str, Any]:
        command = parse(Reschedule, body)
        when = command.when()
        if command.handle is not None and command.topic is None and command.key is None:
            found = self._core.reschedule(command.handle, **when)
        elif command.handle is None and command.topic is not None and command.key is not None:
            found = self._core.reschedule_key(command.topic, command.key, **when)
        else:
            raise InvalidArgumentError("allowed: a handle, or a topic and a key")
        return {"outcome": found.outcome, "receipt": plain_receipt(found.receipt)}

    def _find_key(self, body: bytes) -> dict[str, Any]:
        command = parse(FindKey, body)
        return {"receipt": plain_receipt(self._core.find_key(command.topic, command.key))}


def plain_receipt(receipt: Receipt | None) -> dict[str, Any] | None:
    """A receipt as JSON."""
    if receipt is None:
        return None
    return {name: getattr(receipt, name) for name in ("id", "seq", "due_ms", "handle", "outcome")}
