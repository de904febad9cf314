"""One connection of a gateway, at the broker: polls are served as messages fall due, settlements carried out, batches
scheduled. All of it on the loop's thread; nothing here waits.

What was handed out and not taken by the gateway when the connection ends goes back at once: its clients never saw it.
What was taken stays leased for as long as its lease is: clients may be at it, and settle it through another worker.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import pyarrow as pa

from tarry.api.board import Board, Member
from tarry.api.coalescing import EndOfTurn
from tarry.api.consuming import ConsumerGroup, OnResult, Subscription
from tarry.api.local import LocalBroker, OnAccepted
from tarry.api.receipt import Accepted
from tarry.api.wire import decode_json, encode_accepted, encode_json, encode_placed
from tarry.base.errors import ClosedError, InvalidArgumentError, TarryError, UnavailableError
from tarry.base.event_loop import post
from tarry.base.message import UNNUMBERED
from tarry.base.types import Int64s, Mask
from tarry.base.version import VERSION as TARRY
from tarry.fronts.common.receive_queue import Received, Waiter, leases_of
from tarry.fronts.gateway.frames import (
    CONTROL,
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    LINK,
    VERSION,
    FrameReader,
    Kind,
    Op,
    Poll,
    Settle,
    decode_batch,
    decode_int,
    decode_rows,
    encode_batch,
    encode_int,
    encode_mask,
    error_frame,
    frame,
    keep_alive,
    numbered,
)
from tarry.fronts.gateway.served_calls import QUESTIONS, answer
from tarry.fronts.gateway.served_groups import GroupTable, ServedGroup

log = logging.getLogger(__name__)

HELLO_S = 10.0
"""How long a connection may take to say who it is."""


class Broker(LocalBroker, Protocol):
    """What a gateway is served by."""

    @property
    def board(self) -> Board: ...


@dataclass(slots=True)
class Shared:
    """What the connections of one front share."""

    broker: Broker
    loop: asyncio.AbstractEventLoop
    groups: GroupTable
    run_in_thread: Callable[..., asyncio.Future[Any]]
    connections: set[ServedConnection]
    links: dict[str, ServedConnection]
    """By the names that their workers gave themselves."""


@dataclass(slots=True, eq=False)
class _Consumer:
    """A subscription of the gateway's, and its poll that waits."""

    number: int
    served: ServedGroup
    subscription: Subscription
    waiter: Waiter | None = None


class ServedConnection(asyncio.Protocol):
    """See the module. A link has consumers and a place on the board; a connection for questions has neither."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._broker = shared.broker
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._out: list[Any] = []
        self._end_of_turn = EndOfTurn(shared.loop, self._flush)
        self._consumers: dict[int, _Consumer] = {}
        self._untaken: dict[int, tuple[ConsumerGroup, Int64s, Int64s]] = {}
        """What was handed out and is not confirmed yet, by the numbers of batches."""
        self._batches = 0
        self._worker: str | None = None
        self._is_link = False
        self._member: Member | None = None
        self._transport: asyncio.Transport
        self._hello_timer: asyncio.TimerHandle
        self._handlers: dict[int, Callable[[int, memoryview], None]] = {
            Kind.SUBMIT: self._submit,
            Kind.SUBMIT_CHECKED: self._submit_checked,
            Kind.POLL: self._poll,
            Kind.WITHDRAW: self._withdraw,
            Kind.TAKEN: self._taken,
            Kind.UNTAKEN: self._give_back,
            Kind.SETTLE: self._settle,
            Kind.RENEW: self._renew,
            Kind.CLOSE: self._close_consumer,
            Kind.DROP: self._drop,
            Kind.POST: self._post,
            Kind.SEND: self._send_message,
            Kind.GROUP: self._group,
        }

    # -- the connection ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._shared.connections.add(self)
        connection = transport.get_extra_info("socket")
        if connection.family != socket.AF_UNIX:
            keep_alive(connection)
        self._hello_timer = self._shared.loop.call_later(HELLO_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        try:
            for kind, number, payload in self._reader.feed(data):
                if self._worker is None:
                    self._hello(kind, payload)
                elif kind in QUESTIONS:
                    self._ask(kind, number, payload)
                else:
                    self._handle(kind, number, payload)
        except TarryError as error:
            log.warning("a gateway is cut off: %s", error)
            self._write(error_frame(0, error))
            self._flush()
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._hello_timer.cancel()
        self._shared.connections.discard(self)
        if not self._is_link:
            return
        if self._worker is not None and self._shared.links.get(self._worker) is self:
            del self._shared.links[self._worker]
        if self._member is not None:
            self._member.leave()
        self._shared.groups.forget(self)
        for consumer in self._consumers.values():
            self._stop_waiting(consumer)
        for number in list(self._untaken):
            self._give_back(number, memoryview(b""))
        log.info("gateway %s is gone", self._worker)

    def stop(self) -> None:
        """Cut it off: the broker stops."""
        self._flush()
        self._transport.abort()

    def _handle(self, kind: int, number: int, payload: memoryview) -> None:
        handler = self._handlers.get(kind)
        if handler is None or not (self._is_link or kind == Kind.GROUP):
            raise InvalidArgumentError(f"frame of kind {kind}; allowed: those of docs/formats-gateway.md")
        try:
            handler(number, payload)
        except TarryError as error:
            self._refuse(number, error)
        except Exception:
            log.exception("a gateway's frame of kind %d failed", kind)
            self._refuse(number, TarryError("internal error; see the broker's log"))

    def _refuse(self, number: int, error: TarryError) -> None:
        # A number of 0: nobody waits for the answer.
        if number:
            self._write(error_frame(number, error))
        else:
            log.warning("a gateway asked for what is refused: %s", error)

    def _write(self, parts: list[Any]) -> None:
        self._out += parts
        self._end_of_turn.plan()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and not self._transport.is_closing():
            self._transport.write(b"".join(out))

    # -- who it is -----------------------------------------------------------------------------------------------------

    def _hello(self, kind: int, payload: memoryview) -> None:
        said = decode_json(bytes(payload)) if kind == Kind.HELLO else None
        if not isinstance(said, dict) or said.get("version") != VERSION or said.get("as") not in (LINK, CONTROL):
            raise InvalidArgumentError(
                f"a gateway began with {bytes(payload[:80])!r}; allowed: a greeting of version {VERSION}, "
                f"of Tarry {TARRY}"
            )
        self._hello_timer.cancel()
        self._reader.bytes_max = FRAME_BYTES_MAX
        worker, front, name = (str(said.get(key, "")) for key in ("worker", "front", "name"))
        self._worker = worker
        if said["as"] == LINK:
            self._is_link = True
            self._shared.links[worker] = self
            self._member = self._broker.board.join(front, name, self._on_message, self)
            log.info("gateway %s (%s) has connected", name, worker)
        config = self._broker.config.model_dump(mode="json")
        welcome = {"version": VERSION, "tarry": TARRY, "now_ms": self._broker.clock.now_ms(), "config": config}
        self._write(frame(Kind.WELCOME, 0, encode_json(welcome)))

    def _ask(self, kind: int, number: int, payload: memoryview) -> None:
        def done(answered: asyncio.Future[list[Any]]) -> None:
            if not answered.cancelled():
                if kind == Kind.CALL:
                    self._shared.groups.look()  # what it changed is said to all gateways before it is answered
                self._write(answered.result())

        # A copy: the frames that came with it need not stay in memory for as long.
        self._shared.run_in_thread(answer, self._broker, kind, number, memoryview(bytes(payload))).add_done_callback(
            done
        )

    # -- groups --------------------------------------------------------------------------------------------------------

    def _group(self, number: int, payload: memoryview) -> None:
        asked = decode_json(bytes(payload))
        if not isinstance(asked, dict) or not isinstance(asked.get("topic"), str) or not asked.get("group"):
            raise InvalidArgumentError(f"{bytes(payload[:80])!r}; allowed: an object with a topic and a group")
        topic, name = asked["topic"], str(asked["group"])
        if not asked.get("create"):
            self._tell_group(number, self._broker.find_group(topic, name), follow=bool(asked.get("follow")))
            return

        def make() -> ConsumerGroup:
            return self._broker.group(topic, name, start=asked.get("start"), broadcast=asked.get("broadcast"))

        def done(made: asyncio.Future[ConsumerGroup]) -> None:
            if made.cancelled():
                return
            error = made.exception()
            if isinstance(error, TarryError):
                self._write(error_frame(number, error))
            elif error is not None:
                log.error("making a group failed", exc_info=error)
                self._write(error_frame(number, TarryError("internal error; see the broker's log")))
            else:
                self._tell_group(number, made.result(), follow=False)

        self._shared.run_in_thread(make).add_done_callback(done)

    def _tell_group(self, number: int, group: ConsumerGroup, *, follow: bool) -> None:
        served = self._shared.groups.get_or_add(group)
        link = self._shared.links.get(self._worker or "")
        if link is None:
            self._write(error_frame(number, UnavailableError(f"worker {self._worker} has no link")))
            return
        served.listeners[link] = link.on_state
        if follow:
            # Before the ends are read: what comes after them is announced.
            self._shared.groups.follow(served, link, link.on_news)
        told = {**served.state(), "number": served.number, "ends": group.queue_ends}
        self._write(frame(Kind.RESULT, number, encode_json(told)))

    def on_state(self, served: ServedGroup, state: dict[str, Any]) -> None:
        """Something of a group has changed."""
        self._write(frame(Kind.STATE, served.number, encode_json(state)))

    def on_news(self, number: int) -> None:
        """A group whose queue is read by offsets has more."""
        self._write(frame(Kind.NEWS, number))

    # -- scheduling ----------------------------------------------------------------------------------------------------

    def _submit(self, number: int, payload: memoryview) -> None:
        self._broker.submit(decode_rows(payload), self._answer_batch(number))

    def _submit_checked(self, number: int, payload: memoryview) -> None:
        self._broker.submit_checked(decode_batch(payload, UNNUMBERED), self._answer_batch(number))

    def _answer_batch(self, number: int) -> OnAccepted:
        def on_result(result: Accepted | TarryError) -> None:
            post(self._shared.loop, self._on_accepted, number, result)

        return on_result

    def _on_accepted(self, number: int, result: Accepted | TarryError) -> None:
        if isinstance(result, TarryError):
            self._write(error_frame(number, result))
            return
        due = result.due_ms
        placed = b"" if result.placed is None else encode_placed(result.placed)
        accepted = encode_accepted(result.first_seq, len(due), result.token, due)
        self._write(frame(Kind.ACCEPTED, number, numbered(len(accepted)), accepted, placed))

    # -- consuming -----------------------------------------------------------------------------------------------------

    def _poll(self, number: int, payload: memoryview) -> None:
        poll = Poll.decode(payload)
        consumer = self._consumers.get(number)
        try:
            if consumer is None:
                served = self._shared.groups.find(poll.group)
                subscription = served.group.subscribe(prefetch=poll.prefetch, lease_ms=poll.lease_ms)
                consumer = self._consumers[number] = _Consumer(number, served, subscription)
            elif consumer.waiter is not None:
                raise InvalidArgumentError(f"consumer {number} polls twice; allowed: once at a time")
        except TarryError as error:
            self._on_received(number, error)
            return
        consumer.waiter = Waiter(
            consumer.subscription, poll.rows_max, lambda received: self._on_polled(consumer, received)
        )
        consumer.served.queue.add(consumer.waiter)

    def _on_polled(self, consumer: _Consumer, received: Received) -> None:
        consumer.waiter = None
        if isinstance(received, pa.RecordBatch):
            self._batches += 1
            self._untaken[self._batches] = (consumer.served.group, *leases_of(received))
            self._write(frame(Kind.BATCH, consumer.number, numbered(self._batches), encode_batch(received)))
        else:
            self._on_received(consumer.number, received or ClosedError("the group is closed"))

    def _on_received(self, number: int, error: TarryError) -> None:
        refused = error_frame(number, error)
        self._write(frame(Kind.POLLED, number, *refused[1:]))

    def _withdraw(self, number: int, payload: memoryview) -> None:
        consumer = self._consumers.get(number)
        if consumer is not None:
            self._stop_waiting(consumer)

    def _stop_waiting(self, consumer: _Consumer) -> None:
        waiter, consumer.waiter = consumer.waiter, None
        if waiter is not None:
            consumer.served.queue.remove(waiter)

    def _taken(self, number: int, payload: memoryview) -> None:
        self._untaken.pop(number, None)

    def _give_back(self, number: int, payload: memoryview) -> None:
        """Of a batch that nobody took, the messages are for others at once."""
        untaken = self._untaken.pop(number, None)
        if untaken is not None:
            group, leases, offsets = untaken
            try:
                group.nack(leases, offsets, 0)
            except TarryError as error:
                log.warning("%d messages that nobody took come again with their leases: %s", len(leases), error)

    def _renew(self, number: int, payload: memoryview) -> None:
        consumer = self._consumers.get(number)
        if consumer is not None:
            consumer.subscription.renew(decode_int(payload))

    def _close_consumer(self, number: int, payload: memoryview) -> None:
        consumer = self._consumers.pop(number, None)
        if consumer is not None:
            self._stop_waiting(consumer)
            consumer.subscription.close()

    def _drop(self, number: int, payload: memoryview) -> None:
        """Nobody polls for this consumer any more; what it holds it keeps."""
        consumer = self._consumers.pop(number, None)
        if consumer is not None:
            self._stop_waiting(consumer)

    # -- settling ------------------------------------------------------------------------------------------------------

    def _settle(self, number: int, payload: memoryview) -> None:
        settle = Settle.decode(payload)
        group = self._shared.groups.find(settle.group).group
        on_result = self._answer_settle(number) if number else None
        leases, offsets, argument = settle.leases, settle.offsets, settle.argument
        match settle.op:
            case Op.ACK_EACH:
                group.ack_each(leases, offsets, lambda held: post(self._shared.loop, self._on_each, number, held))
            case Op.ACK:
                group.ack(leases, offsets, on_result)
            case Op.NACK:
                group.nack(leases, offsets, None if argument < 0 else argument, on_result)
            case Op.REJECT:
                group.reject(leases, offsets, on_result)
            case Op.EXTEND:
                group.extend(leases, offsets, argument)
            case Op.CHANGE:
                group.change_lease(
                    int(leases[0]),
                    int(offsets[0]),
                    argument,
                    lambda lease: post(self._shared.loop, self._on_lease, number, lease),
                )

    def _answer_settle(self, number: int) -> OnResult:
        def on_result(error: TarryError | None) -> None:
            post(self._shared.loop, self._on_settled, number, error)

        return on_result

    def _on_settled(self, number: int, error: TarryError | None) -> None:
        self._write(frame(Kind.SETTLED, number) if error is None else error_frame(number, error))

    def _on_each(self, number: int, held: Mask | TarryError) -> None:
        if isinstance(held, TarryError):
            self._write(error_frame(number, held))
        else:
            self._write(frame(Kind.SETTLED, number, encode_mask(held)))

    def _on_lease(self, number: int, lease: int | TarryError | None) -> None:
        if isinstance(lease, TarryError):
            self._write(error_frame(number, lease))
        else:
            self._write(frame(Kind.SETTLED, number, b"" if lease is None else encode_int(lease)))

    # -- the board -----------------------------------------------------------------------------------------------------

    def _post(self, number: int, payload: memoryview) -> None:
        key, value = decode_json(bytes(payload))
        if self._member is not None:
            self._member.post(key, value)

    def _send_message(self, number: int, payload: memoryview) -> None:
        to, message = decode_json(bytes(payload))
        if self._member is not None:
            self._member.send(message, to)

    def _on_message(self, sender: int, message: Mapping[str, Any]) -> None:
        self._post_frame(frame(Kind.MESSAGE, sender, encode_json(message)))

    def on_post(self, member: int, key: str, value: Mapping[str, Any] | None) -> None:
        """See :class:`tarry.api.board.Watcher`."""
        self._post_frame(frame(Kind.SAID, member, encode_json([key, value])))

    def _post_frame(self, parts: list[Any]) -> None:
        post(self._shared.loop, self._write, parts)
