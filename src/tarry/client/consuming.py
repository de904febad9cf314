"""The connections of a client's consumers, and one consumer's stream of messages on them.

All of it is on the clients' event loop, but for what says otherwise: a consumer has no thread. A stream has one POLL
under way, which the broker answers when there is a message and room for it; its ``prefetch`` is the consumer's window.
So a stream that stands still is handed one batch, and no more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tarry.api.row_schemas import DELIVERY
from tarry.api.wire import decode_error, decode_json
from tarry.base.errors import (
    ClosedError,
    NotFoundError,
    OwnershipLostError,
    TarryError,
    UnauthenticatedError,
    UnavailableError,
)
from tarry.base.event_loop import answer_future, post
from tarry.base.types import Int64s
from tarry.client.background import background_loop
from tarry.client.connection import BrokerConnection
from tarry.client.encoding import encoded
from tarry.client.settling import Settler, Source
from tarry.client.stream_op import StreamOp
from tarry.client.unanswered import OnSettled, Unanswered, acks_lost
from tarry.link.address import BrokerAddress
from tarry.link.frames import FrameKind, Pairs, Poll, SettleFrame, SettleOp, split_number
from tarry.link.peer import LOST, LinkPeer, OnAnswer
from tarry.link.places import BrokerPlaces

FEEDS_MAX = 1_000
"""Consumers of one connection: the broker takes no more."""
LOOK_S = 0.05
"""Seconds between two looks at whether something is still in work, at the end of a stream."""
POLLED_S = 1.0
"""Seconds that the end of a stream waits for the answer to its last poll."""
PING = encoded({"op": "ping"})
_OPS = {
    StreamOp.ACK: SettleOp.ACK,
    StreamOp.NACK: SettleOp.NACK,
    StreamOp.FAIL: SettleOp.NACK,
    StreamOp.REJECT: SettleOp.REJECT,
    StreamOp.EXTEND: SettleOp.EXTEND,
}

OnBatch = Callable[[pa.RecordBatch, "ConsumerStream"], None]


class ConsumingConnections:
    """The connections of one client's consumers, as many as they need. On the loop's thread."""

    def __init__(self, address: str | BrokerAddress | BrokerPlaces) -> None:
        """Connect when the first consumer does. Any thread.

        Raises:
            InvalidArgumentError: ``address`` is none.
        """
        self._places = BrokerPlaces.of(address)
        self.address = self._places.text
        self.loop = background_loop()
        self._all = [ConsumingConnection(self._places)]

    def take(self) -> ConsumingConnection:
        """Return a connection for one consumer more."""
        for shared in self._all:
            if shared.feeds < FEEDS_MAX:
                break
        else:
            shared = ConsumingConnection(self._places)
            self._all.append(shared)
        shared.feeds += 1
        return shared

    def give_back(self, shared: ConsumingConnection) -> None:
        """Note that a consumer does not need its connection any more; without consumers, it ends."""
        shared.feeds -= 1
        if not shared.feeds:
            shared.connection.disconnect()


class ConsumingConnection:
    """A connection that consumers share."""

    def __init__(self, places: BrokerPlaces) -> None:
        self.connection = BrokerConnection(
            places,
            handlers={FrameKind.BATCH: self._on_batch, FrameKind.POLLED: self._on_polled},
            on_refused=self._on_refused,
            on_lost=self._on_lost,
        )
        self.feeds = 0
        """Consumers that have taken it; changed by :class:`ConsumingConnections`."""
        self.streams: dict[tuple[LinkPeer, int], ConsumerStream] = {}
        """By the side of the link and number: one that has been left counts from 1, too, and may still speak."""

    async def name_group(self, group: dict[str, Any]) -> tuple[LinkPeer, dict[str, Any]]:
        """Name a group, which is made if it is new; return the broker's description of it, and the way to it.

        Raises:
            UnavailableError: there is no broker. TarryError: it refuses the topic or the group.
        """
        peer = await self.connection.peer()
        answer: asyncio.Future[memoryview]
        answer, on_answer = answer_future(self.connection.loop)
        peer.ask(FrameKind.GROUP, on_answer, encoded(group))
        try:
            described: dict[str, Any] = decode_json(bytes(await answer))
        except OwnershipLostError as error:
            raise self.connection.lose(peer, error) from error
        if peer.lost:  # since it has answered; nobody would tell a stream
            raise UnavailableError(LOST)
        return peer, described

    def _on_batch(self, peer: LinkPeer, number: int, payload: memoryview) -> None:
        stream = self.streams.get((peer, number))
        if stream is None:
            return  # it was closed, and the broker has what it held
        if self.connection.is_former(peer):
            self.connection.lose(peer)  # a later owner may have handed these out, or counts them as handed out
        else:
            stream.on_batch(split_number(payload)[1])

    def _on_polled(self, peer: LinkPeer, number: int, payload: memoryview) -> None:
        stream = self.streams.get((peer, number))
        if stream is None:
            return
        error = decode_error(bytes(payload)) if len(payload) else None
        stream.on_polled(self.connection.lose(peer, error) if isinstance(error, OwnershipLostError) else error)

    def _on_refused(self, peer: LinkPeer, error: TarryError) -> None:
        if isinstance(error, UnauthenticatedError):
            # The file of the token may have another by now; if not, connecting again tells.
            error = UnavailableError(str(error))
        self._end_streams(peer, error)

    def _on_lost(self, peer: LinkPeer) -> None:
        self._end_streams(peer, UnavailableError(LOST))

    def _end_streams(self, peer: LinkPeer, error: TarryError) -> None:
        for stream in list(self.streams.values()):
            if stream.peer is peer:
                stream.end(error)


class ConsumerStream:
    """One consumer on one connection; the first :meth:`resize` asks for messages.

    :attr:`ended` gets the error that ends it.
    """

    def __init__(
        self,
        shared: ConsumingConnection,
        peer: LinkPeer,
        described: dict[str, Any],
        lease_ms: int | None,
        tend: Callable[[], float | None],
        on_batch: OnBatch,
        on_settled: OnSettled,
        on_void: Callable[[int], None],
    ) -> None:
        self.peer = peer
        self._shared = shared
        self._loop = shared.connection.loop
        self._group: int = described["number"]
        self.lease_ms: int = lease_ms or described["lease_ms"]
        """Milliseconds for which a batch is the consumer's."""
        self._on_batch = on_batch
        self._number = peer.number()
        shared.streams[peer, self._number] = self
        self.settler = Settler(self._send, loop=self._loop, tend=tend, on_void=on_void)
        self._on_settled = on_settled
        self._unanswered = Unanswered(self._on_settlement)
        self._window = 0
        self.polls = 0
        """Number of polls that were sent."""
        self.answered = 0
        """Number of polls that were answered."""
        self.heard_s = time.monotonic()
        """Time of the broker's last word, monotonic."""
        self.ended: asyncio.Future[TarryError] = self._loop.create_future()
        self._heard = asyncio.Event()
        self._closed = False

    def sent(self) -> int:
        """Return the number of polls that were sent. Any thread."""
        return self.polls

    def resize(self, window: int) -> None:
        """Hold up to so many unsettled messages from now on."""
        if self._closed:
            return
        is_polling = self.polls > self.answered
        if is_polling and window != self._window:
            # It is answered all the same, by POLLED or by a batch that is on its way.
            self.peer.send(FrameKind.WITHDRAW, self._number)
            is_polling = False
        self._window = window
        if not is_polling:
            self._poll()

    def on_batch(self, raw: memoryview) -> None:
        """Take messages."""
        self._on_answer()
        batch = pa.ipc.read_record_batch(pa.py_buffer(raw), DELIVERY)
        self._on_batch(batch, self)
        self._poll_if_idle()

    def on_polled(self, error: TarryError | None) -> None:
        """Take the answer that there is nothing, or the error that ends the stream."""
        self._on_answer()
        if isinstance(error, ClosedError):
            # Not to be tried again: that would make the group anew, and begin at its beginning.
            error = NotFoundError("the group was deleted")
        if error is not None:
            self.end(error)
        else:
            self._poll_if_idle()

    def end(self, error: TarryError) -> None:
        """End for this reason: the connection is lost, the broker is stopping, or it refuses the consumer."""
        if not self.ended.done():
            self.ended.set_result(error)

    def close(self) -> TarryError | None:
        """Give back what is held, once; what was sent before is settled.

        Return the error that nobody was told of, where the broker has not confirmed all of that.
        """
        self._closed = True
        self.peer.send(FrameKind.CLOSE, self._number)
        self._shared.streams.pop((self.peer, self._number), None)
        self.settler.close()
        return self._unanswered.close()

    def flush(self, timeout_s: float) -> None:
        """Wait until what was settled so far is durable; raises as :meth:`Unanswered.wait`. In another thread."""
        self.settler.push()
        self._unanswered.wait(timeout_s)
        error = self.settler.take_error()
        if error is not None:
            raise error

    async def settle_all(self, is_at_work: Callable[[], bool], timeout_s: float) -> None:
        """Send what is settled until nothing is in work, and wait until all is durable; for so long at most.

        Waits for the answer to the last poll, too: what it may bring is given back before :meth:`close`, which would
        count a try for it.
        """
        now_s = self._loop.time()
        end_s, polled_s = now_s + timeout_s, now_s + POLLED_S
        while not self.peer.lost and (now_s := self._loop.time()) < end_s:
            is_polling = self.polls > self.answered and now_s < polled_s
            if not (is_polling or is_at_work() or not self._unanswered.is_idle):
                break
            self.settler.push()
            self._heard.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._heard.wait()
        if not self.peer.lost:
            self.settler.push()
            await asyncio.sleep(0)  # what was pushed is sent before what the caller sends

    async def answers(self, timeout_s: float) -> bool:
        """Return whether the broker answers in time, or the connection ends."""
        answer: asyncio.Future[memoryview]
        answer, on_answer = answer_future(self._loop)
        try:
            self.peer.ask(FrameKind.CALL, on_answer, PING)
            async with asyncio.timeout(timeout_s):
                await answer
        except TimeoutError:
            return False
        except TarryError:
            pass
        return True

    # -- internals -----------------------------------------------------------------------------------------------------

    def _on_answer(self) -> None:
        self.answered += 1
        self.heard_s = time.monotonic()
        self._heard.set()

    def _poll_if_idle(self) -> None:
        if self.polls == self.answered:
            self._poll()

    def _poll(self) -> None:
        if self._window and not self._closed:
            self.polls += 1
            poll = Poll(self._group, self._window, self.lease_ms, self._window)
            self.peer.send(FrameKind.POLL, self._number, poll.encode())

    def _send(self, op: StreamOp, argument: int, source: Source, leases: Int64s, offsets: Int64s, reason: str) -> None:
        """Carry out what the settler has gathered. Any thread."""
        if op is StreamOp.WINDOW:
            post(self._loop, self.resize, argument)
        elif not len(leases):
            return
        elif op is StreamOp.RETURN:
            for some in Pairs(leases, offsets).parts():
                post(self._loop, self.peer.send, FrameKind.RETURN, self._number, some.encode())
        else:
            for some in Pairs(leases, offsets).parts():
                settle = SettleFrame(_OPS[op], self._group, argument, *some, reason or None)
                if op is StreamOp.EXTEND:
                    post(self._loop, self.peer.send, FrameKind.SETTLE, 0, settle.encode())
                else:
                    post(self._loop, self._settle, settle.encode(), self._unanswered.begin())

    def _on_settlement(self, error: TarryError | None) -> None:
        self._heard.set()
        self._on_settled(error)

    def _settle(self, settle: bytes, on_answer: OnAnswer) -> None:
        def answered(answer: memoryview | TarryError) -> None:
            is_lost = isinstance(answer, OwnershipLostError)
            on_answer(self._shared.connection.lose(self.peer, answer) if is_lost else answer)

        try:
            self.peer.ask(FrameKind.SETTLE, answered, settle)
        except UnavailableError:
            on_answer(acks_lost("the connection was lost"))
