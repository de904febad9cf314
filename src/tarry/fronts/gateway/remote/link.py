"""The stream of a worker to its broker, on the loop of its front: no thread hands over to another.

When the link is lost, all waiting calls get an error, and the front ends: see :mod:`tarry.cli.gateway_term`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from tarry.api.wire import decode_error, decode_json
from tarry.base.errors import TarryError, UnavailableError
from tarry.base.event_loop import post
from tarry.fronts.gateway.authentication import Trust
from tarry.link.blocking import connect, host_of
from tarry.link.frames import FrameKind, split_number
from tarry.link.peer import LOST, LinkPeer, OnFrame

log = logging.getLogger(__name__)


def greeting(kind: str, worker: str, front: str, name: str) -> dict[str, Any]:
    """Return the fields of the greeting with which a worker's connection begins."""
    return {"as": kind, "worker": worker, "front": front, "name": name}


class PollReceiver(Protocol):
    """Receiver of a poll's answer. On the loop's thread."""

    def on_batch(self, number: int, payload: memoryview) -> None:
        """Take messages, as the batch of this number."""
        ...

    def on_polled(self, error: TarryError | None) -> None:
        """Take the error in place of messages, or that there are none now: there will be none for this poll."""
        ...


class GroupListener(Protocol):
    """Listener to changes of groups. On the loop's thread."""

    def on_state(self, number: int, state: Mapping[str, Any]) -> None: ...
    def on_news(self, number: int) -> None: ...


class BoardListener(Protocol):
    """Listener to the front's other processes. On the loop's thread."""

    def on_said(self, member: int, key: str, value: Mapping[str, Any] | None) -> None: ...
    def on_message(self, member: int, message: Mapping[str, Any]) -> None: ...


OnTold = Callable[[Any], None]
"""Called on the loop's thread with all access tokens, identities or providers, after each change."""


def _tell(on_told: OnTold, _: int, payload: memoryview) -> None:
    on_told(decode_json(bytes(payload)))


class Link:
    """The link to the broker, made by :meth:`open`.

    On the loop's thread, but for what says otherwise. After it is lost, its methods do nothing.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        greeting: Mapping[str, Any],
        trust: Trust,
        groups: GroupListener,
        board: BoardListener,
        on_told: Mapping[FrameKind, OnTold],
        on_lost: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._trust, self._groups, self._board = trust, groups, board
        self._on_told, self._on_lost = on_told, on_lost
        self._receivers: dict[int, PollReceiver] = {}
        self._peer = LinkPeer(loop, greeting, self._handlers(), _on_refused, self._on_peer_lost)
        self.number, self.send, self.ask, self.close = (
            self._peer.number,
            self._peer.send,
            self._peer.ask,
            self._peer.close,
        )
        self.rows_in = self.rows_out = self.batches_in = 0
        """Messages sent to be scheduled, messages received, and batches sent."""

    @classmethod
    async def open(
        cls,
        address: str,
        greeting: Mapping[str, Any],
        trust: Trust,
        groups: GroupListener,
        board: BoardListener,
        on_told: Mapping[FrameKind, OnTold],
        on_lost: Callable[[], None],
    ) -> Link:
        """Connect on the running loop, and begin with ``greeting``. ``on_lost`` is called once, on the loop.

        Raises:
            UnavailableError: there is no broker. InvalidArgumentError: it does not take this gateway.
        """
        loop = asyncio.get_running_loop()
        tls = trust.tls
        host = None if tls is None else host_of(address)
        connection = connect(address)
        connection.setblocking(False)
        link = cls(loop, greeting, trust, groups, board, on_told, on_lost)
        is_near = connection.family == socket.AF_UNIX
        begin = loop.create_unix_connection if is_near else loop.create_connection
        try:
            await begin(lambda: link._peer, sock=connection, ssl=tls, server_hostname=host)
        except OSError as error:
            raise UnavailableError(f"no link to the broker at {address}: {error}") from error
        await link._peer.welcome
        return link

    @property
    def lost(self) -> bool:
        return self._peer.lost

    def send_from_anywhere(self, kind: FrameKind, number: int, *payload: Any) -> None:
        """:meth:`send`, from any thread."""
        post(self._loop, self.send, kind, number, *payload)

    def receive(self, number: int, receiver: PollReceiver) -> None:
        """Pass batches for the consumer of that number to ``receiver``."""
        self._receivers[number] = receiver

    def forget(self, number: int) -> None:
        """Stop receiving for that number. Any thread."""
        self._receivers.pop(number, None)

    # -- called by the peer --------------------------------------------------------------------------------------------

    def _handlers(self) -> dict[int, OnFrame]:
        return {
            FrameKind.BATCH: self._on_batch,
            FrameKind.POLLED: self._on_polled,
            FrameKind.STATE: lambda number, payload: self._groups.on_state(number, decode_json(bytes(payload))),
            FrameKind.NEWS: lambda number, _: self._groups.on_news(number),
            FrameKind.SAID: lambda number, payload: self._board.on_said(number, *decode_json(bytes(payload))),
            FrameKind.MESSAGE: lambda number, payload: self._board.on_message(number, decode_json(bytes(payload))),
            **{kind: partial(_tell, on_told) for kind, on_told in self._on_told.items()},
            FrameKind.CHALLENGE: lambda _, payload: self.send(FrameKind.PROOF, 0, self._trust.proof(bytes(payload))),
        }

    def _on_batch(self, number: int, payload: memoryview) -> None:
        batch, rows = split_number(payload)
        receiver = self._receivers.get(number)
        if receiver is None:
            self.send(FrameKind.UNTAKEN, batch)
        else:
            receiver.on_batch(batch, rows)

    def _on_polled(self, number: int, payload: memoryview) -> None:
        receiver = self._receivers.get(number)
        if receiver is not None:
            receiver.on_polled(decode_error(bytes(payload)) if len(payload) else None)

    def _on_peer_lost(self) -> None:
        receivers, self._receivers = self._receivers, {}
        for receiver in receivers.values():
            receiver.on_polled(UnavailableError(LOST))
        self._on_lost()


def _on_refused(refused: TarryError) -> None:
    log.warning("the broker refused: %s", refused)
