"""Acknowledgements to RabbitMQ: those of one turn of the loop travel together, in few frames."""

from __future__ import annotations

import asyncio

from aiormq.abc import AbstractChannel

from tarry.bridge import frames
from tarry.bridge.wire import WiredConnection


class Acks:
    """Of one channel, on which nobody else acknowledges."""

    def __init__(self, connection: WiredConnection, channel: AbstractChannel) -> None:
        self._wire, self._channel = connection.wire, channel
        self._loop = asyncio.get_running_loop()
        self._next = 1
        """The lowest tag that is not done."""
        self._done: set[int] = set()
        """Tags from there on that are, and are not told."""
        self._told: set[int] = set()
        """Tags from there on that are told: one by one, since others before them are not done."""
        self._closing = False

    def add(self, tag: int) -> None:
        """Acknowledge a message, soon."""
        if not self._done:
            self._loop.call_soon(self._flush)
        self._done.add(tag)

    def close(self) -> None:
        """Send nothing more."""
        self._closing = True

    def _flush(self) -> None:
        parts, last = [], 0
        while (is_new := self._next in self._done) or self._next in self._told:
            if is_new:
                self._done.remove(self._next)
                last = self._next  # RabbitMQ takes a tag that it has had before for an error
            else:
                self._told.remove(self._next)
            self._next += 1
        number = self._channel.number
        if last:
            parts.append(frames.ack_frame(number, last, multiple=True))
        parts += [frames.ack_frame(number, tag, multiple=False) for tag in sorted(self._done)]
        self._told |= self._done
        self._done.clear()
        if not self._closing and not self._channel.is_closed:
            self._wire.write(parts)
