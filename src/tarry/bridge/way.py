"""The way to one exchange: a channel with confirms, and what is under way on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelInvalidStateError

from tarry.bridge import frames
from tarry.bridge.amqp_fields import name_of
from tarry.bridge.wire import WiredConnection

KEYS_MAX = 1000
Done = Callable[[BaseException | None], None]
"""Told of a message: RabbitMQ has it (None), or why not, or that nobody knows."""


class NotTakenError(Exception):
    """RabbitMQ does not take a message; it says why: no such exchange, no queue behind it, or a refusal."""


@dataclass(slots=True)
class _Sent:
    """A message under way."""

    raw: bytes
    body: bytes
    routing_key: str
    done: Done
    name: str = ""
    """Of its properties, where that was asked for."""
    why_returned: str | None = None


class ExchangeWay:
    """Sends messages by a channel that nobody else publishes on."""

    def __init__(self, connection: WiredConnection, channel: AbstractChannel, exchange: str) -> None:
        self.channel, self._wire, self._exchange = channel, connection.wire, exchange
        self._number, self._frame_max = channel.number, connection.frame_max
        self._sent: dict[int, _Sent] = {}
        """By number, in their order."""
        self._last = 0
        self._frames: dict[str, bytes] = {}
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._closing = False
        connection.listen(channel, self)
        channel.closing.add_done_callback(self._on_closed)

    @property
    def is_open(self) -> bool:
        """True if messages may be sent."""
        return not self._closing and not self.channel.is_closed

    @property
    def is_idle(self) -> bool:
        """True if nothing is under way."""
        return not self._sent

    def send(self, raw: bytes, body: bytes, routing_key: str, done: Done) -> None:
        """Send a message with encoded properties; ``done`` is told what became of it, later and once.

        Raises:
            ChannelInvalidStateError: the channel has ended.
        """
        if not self.is_open:
            raise ChannelInvalidStateError("the channel has ended")
        method = self._frames.get(routing_key)
        if method is None:
            if len(self._frames) >= KEYS_MAX:
                self._frames.clear()
            method = self._frames[routing_key] = frames.publish_frame(self._number, self._exchange, routing_key)
        self._last += 1
        self._sent[self._last] = _Sent(raw, body, routing_key, done)
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting += (method, *frames.content_frames(self._number, raw, body, self._frame_max))

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self.is_open:
            self._wire.write(waiting)

    def on_closing(self) -> None:
        """Send nothing more."""
        self._closing = True

    def on_confirm(self, tag: int, *, multiple: bool, is_taken: bool) -> None:
        """Take a confirm."""
        tags = [tag]
        if multiple:
            tags = []
            for each in self._sent:
                if each > tag > 0:  # 0: of all
                    break
                tags.append(each)
        for each in tags:
            if (sent := self._sent.pop(each, None)) is not None:
                sent.done(self._error_of(sent, is_taken=is_taken))

    def on_message(self, method: bytes, raw: bytes, body: bytes) -> None:
        """Take a message that RabbitMQ returns: its confirm comes later.

        Which it is, it does not say: the first that says the same is as good as another.
        """
        if not method.startswith(frames.RETURN):
            return
        why, routing_key = frames.returned_of(method)
        name = name_of(raw)
        for sent in self._sent.values():
            if sent.why_returned is None and sent.routing_key == routing_key and sent.body == body:
                sent.name = sent.name or name_of(sent.raw)
                if sent.name == name:
                    sent.why_returned = why
                    return

    def _error_of(self, sent: _Sent, *, is_taken: bool) -> NotTakenError | None:
        shown = f"exchange {self._exchange!r}, routing key {sent.routing_key!r}"
        if sent.why_returned is not None:
            return NotTakenError(f"no queue takes it: {sent.why_returned}, {shown}")
        return None if is_taken else NotTakenError(f"a queue refuses it, {shown}")

    def _on_closed(self, ended: asyncio.Future[Any]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if not isinstance(error, Exception):
            error = ChannelInvalidStateError("the connection has ended")
        sent, self._sent = self._sent, {}
        for each in sent.values():
            each.done(error)
