"""What the bridge reads and writes past the library, without a RabbitMQ."""

from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

import pytest
from aiormq.exceptions import ChannelInvalidStateError, ChannelNotFoundEntity

from tarry.bridge import frames
from tarry.bridge.acks import Acks
from tarry.bridge.amqp_fields import AmqpProperties
from tarry.bridge.exchanges import LOST
from tarry.bridge.way import ExchangeWay, NotTakenError
from tarry.bridge.wire import AmqpWire
from tests.rabbitmq.wire_place import (
    CHANNEL,
    FakeChannel,
    FakeConnection,
    Heard,
    confirm_frame,
    deliver_arguments,
    method_frame,
    read_by_library,
    return_arguments,
)

pytestmark = pytest.mark.asyncio

RAW = AmqpProperties(fields={"delivery_mode": b"\2"}).encode()
OF_LIBRARY = struct.pack(">HH", 60, 21)
"""Basic.ConsumeOk."""


@pytest.mark.parametrize("step", [1, 2, 7, 8, 9, 50, 10_000])
async def test_messages_and_confirms_are_taken_out_wherever_the_stream_is_cut(step: int) -> None:
    wire, heard = AmqpWire(), Heard()
    wire.listeners[CHANNEL] = heard
    body = b"b" * 25
    other = method_frame(frames.DELIVER, deliver_arguments(1), channel=8)
    parts = [
        method_frame(OF_LIBRARY, b"\5ctag1"),
        method_frame(frames.DELIVER, deliver_arguments(1)),
        *frames.content_frames(CHANNEL, RAW, body, frame_max=18),
        confirm_frame(frames.ACK, 3, multiple=True),
        other,
        method_frame(frames.RETURN, return_arguments(b"NO_ROUTE")),
        *frames.content_frames(CHANNEL, RAW, b"", frame_max=18),
        confirm_frame(frames.NACK, 4),
        *frames.content_frames(8, RAW, body, frame_max=18),
        method_frame(frames.CHANNEL_CLOSE, b"rest"),
    ]
    data = b"".join(parts)
    read, told = await read_by_library(wire, [data[at : at + step] for at in range(0, len(data), step)])
    assert read == b"".join((parts[0], other, *frames.content_frames(8, RAW, body, frame_max=18), parts[-1]))
    assert told <= 1
    assert [(raw, found) for _, raw, found in heard.messages] == [(RAW, body), (RAW, b"")]
    assert frames.delivered_of(heard.messages[0][0]) == frames.DeliverArguments(1, "orders.delayed", "new")
    assert frames.returned_of(heard.messages[1][0]) == ("NO_ROUTE", "new")
    assert heard.confirms == [(3, True, True), (4, False, False)]
    assert heard.closing == 1


async def test_the_library_learns_that_the_connection_lives() -> None:
    wire = AmqpWire()
    wire.listeners[CHANNEL] = Heard()
    assert await read_by_library(wire, [confirm_frame(frames.ACK, 1)]) == (b"", 1)


async def test_an_error_of_a_listener_ends_nothing_else() -> None:
    class Fails(Heard):
        def on_confirm(self, tag: int, *, multiple: bool, is_taken: bool) -> None:
            super().on_confirm(tag, multiple=multiple, is_taken=is_taken)
            raise ValueError

    wire, heard = AmqpWire(), Fails()
    wire.listeners[CHANNEL] = heard
    await read_by_library(wire, [confirm_frame(frames.ACK, 1) + confirm_frame(frames.ACK, 2)])
    assert [tag for tag, *_ in heard.confirms] == [1, 2]


TORN = {
    "a header that is cut off": (frames.frame(frames.HEADER, CHANNEL, b"\0<"), "cannot be read"),
    "another end": (frames.content_frames(CHANNEL, RAW, b"", 4096)[0][:-1] + b"x", "ends with 0x78; allowed: 0xce"),
    "more than was said": (
        frames.content_frames(CHANNEL, RAW, b"ab", 4096)[0] + frames.frame(frames.BODY, CHANNEL, b"abc"),
        "1 bytes more than was said",
    ),
    "less than was said": (
        frames.content_frames(CHANNEL, RAW, b"ab", 4096)[0] + method_frame(frames.DELIVER, deliver_arguments(2)),
        "before the end of the one before it",
    ),
    "larger than was agreed": (
        frames.HEAD.pack(frames.BODY, CHANNEL, 1 << 30) + b"x",
        "1073741824 bytes; allowed: 4096",
    ),
}


@pytest.mark.parametrize("name", TORN)
async def test_frames_that_cannot_be_end_the_connection(name: str) -> None:
    torn, why = TORN[name]
    wire, heard = AmqpWire(), Heard()
    wire.listeners[CHANNEL], wire.frame_max = heard, 4096
    with pytest.raises(LOST, match=why):
        await read_by_library(wire, [method_frame(frames.DELIVER, deliver_arguments(1)) + torn])
    assert not heard.messages


async def test_what_the_connection_says_of_itself() -> None:
    wire = AmqpWire()
    await read_by_library(wire, [method_frame(frames.BLOCKED, b"\3low", channel=0)])
    assert wire.is_blocked
    closing = struct.pack(">HB", 530, 4) + b"gone" + struct.pack(">HH", 0, 0)
    await read_by_library(
        wire, [method_frame(frames.UNBLOCKED, channel=0) + method_frame(frames.CONNECTION_CLOSE, closing, channel=0)]
    )
    assert not wire.is_blocked
    assert wire.closed == (530, "gone")


# -- the way out -------------------------------------------------------------------------------------------------------


class Sending:
    def __init__(self, frame_max: int = 4096) -> None:
        self.connection, self.channel = FakeConnection(frame_max), FakeChannel()
        connection, channel = self.connection, self.channel
        faked: Any = connection
        self.way = ExchangeWay(faked, _any(channel), "orders")
        self.answers: dict[int, BaseException | None] = {}

    def send(self, number: int, body: bytes = b"", key: str = "new", raw: bytes = RAW) -> None:
        self.way.send(raw, body, key, lambda error: self.answers.__setitem__(number, error))

    def give_back(self, body: bytes, key: bytes = b"new", raw: bytes = RAW) -> None:
        self.way.on_message(frames.RETURN + return_arguments(b"NO_ROUTE", key=key), raw, body)


def _any(value: Any) -> Any:
    return value


async def test_messages_go_out_as_frames_that_are_not_too_large() -> None:
    sending = Sending(frame_max=18)
    sending.connection.frame_max = 100  # of what is looked at, the method is larger
    for body in (b"", b"0123456789", b"0123456789a", b"x" * 35):
        sending.send(0, body)
        await asyncio.sleep(0)
        (kind, method), (_, header), *bodies = sending.connection.take_written()
        assert kind == frames.METHOD
        assert method == struct.pack(">HHH", 60, 40, 0) + b"\6orders\3new\1"
        assert header == struct.pack(">HHQ", 60, 0, len(body)) + RAW
        assert all(kind == frames.BODY and 0 < len(part) <= 10 for kind, part in bodies)
        assert b"".join(part for _, part in bodies) == body


async def test_confirms_of_one_and_of_all_before_it() -> None:
    sending = Sending()
    for number in range(1, 8):
        sending.send(number)
    sending.way.on_confirm(2, multiple=False, is_taken=True)
    assert sending.answers == {2: None}
    sending.way.on_confirm(4, multiple=True, is_taken=True)
    assert sending.answers == dict.fromkeys((2, 1, 3, 4))
    sending.way.on_confirm(6, multiple=True, is_taken=False)
    assert {number for number, error in sending.answers.items() if isinstance(error, NotTakenError)} == {5, 6}
    assert not sending.way.is_idle
    sending.way.on_confirm(7, multiple=False, is_taken=True)
    assert sending.answers[7] is None
    assert sending.way.is_idle


async def test_a_confirm_of_number_0_and_all_before_it_is_of_all() -> None:
    sending = Sending()
    for number in (1, 2, 3):
        sending.send(number)
    sending.way.on_confirm(0, multiple=True, is_taken=True)
    assert sending.answers == {1: None, 2: None, 3: None}


async def test_what_is_returned_is_found_by_what_it_says() -> None:
    sending = Sending()
    other = AmqpProperties(fields={"delivery_mode": b"\1"}).encode()
    sent = [(b"a", "new", RAW), (b"a", "old", RAW), (b"a", "old", other), (b"b", "old", RAW), (b"a", "old", RAW)]
    for number, (body, key, raw) in enumerate(sent, start=1):
        sending.send(number, body, key, raw)
    with_stamp = AmqpProperties(fields={"delivery_mode": b"\2"})
    with_stamp.headers[b"timestamp_in_ms"] = b"l" + bytes(8)  # RabbitMQ's own
    sending.give_back(b"a", b"old", with_stamp.encode())
    sending.give_back(b"a", b"old", other)
    sending.give_back(b"not sent", b"old")
    sending.way.on_confirm(5, multiple=True, is_taken=True)
    assert {number for number, error in sending.answers.items() if isinstance(error, NotTakenError)} == {2, 3}
    assert str(sending.answers[2]) == "no queue takes it: NO_ROUTE, exchange 'orders', routing key 'old'"


async def test_equal_messages_are_returned_as_often_as_rabbitmq_does() -> None:
    sending = Sending()
    for number in range(1, 4):
        sending.send(number, b"a")
    for _ in range(2):
        sending.give_back(b"a")
    sending.way.on_confirm(3, multiple=True, is_taken=True)
    assert [isinstance(sending.answers[number], NotTakenError) for number in (1, 2, 3)] == [True, True, False]


async def test_a_channel_that_ends_leaves_its_messages_without_an_answer_and_sends_nothing() -> None:
    sending = Sending()
    sending.send(1)
    await asyncio.sleep(0)
    sending.connection.take_written()
    sending.send(2)
    sending.way.on_closing()
    await asyncio.sleep(0)
    assert sending.connection.take_written() == []
    with pytest.raises(ChannelInvalidStateError):
        sending.send(3)
    sending.channel.closing.set_exception(ChannelNotFoundEntity("no exchange"))
    await asyncio.sleep(0)
    assert set(sending.answers) == {1, 2}
    assert all(isinstance(error, ChannelNotFoundEntity) for error in sending.answers.values())


async def test_a_connection_that_is_lost_says_so_by_one_error() -> None:
    sending = Sending()
    sending.send(1)
    sending.channel.closing.set_exception(asyncio.CancelledError())
    await asyncio.sleep(0)
    assert isinstance(sending.answers[1], ChannelInvalidStateError)


# -- acknowledgements --------------------------------------------------------------------------------------------------


class Queue:
    """Messages that are not acknowledged, as RabbitMQ has them: a tag that is not among them ends the channel."""

    def __init__(self, count: int) -> None:
        self.open = set(range(1, count + 1))

    def take(self, written: list[tuple[int, bytes]]) -> None:
        for kind, payload in written:
            assert kind == frames.METHOD
            assert payload[:4] == frames.ACK
            tag, multiple = struct.unpack_from(">QB", payload, 4)
            assert tag in self.open
            self.open -= {each for each in self.open if each <= tag} if multiple else {tag}


@pytest.mark.parametrize("seed", range(20))
async def test_acknowledgements_are_of_what_is_done_and_of_nothing_else(seed: int) -> None:
    chance, connection = random.Random(seed), FakeConnection()
    faked: Any = connection
    acks, queue = Acks(faked, _any(FakeChannel())), Queue(60)
    order = sorted(range(1, 61), key=lambda tag: tag + chance.choice((0, 3, 30)) * chance.random())
    done: set[int] = set()
    while order:
        size = chance.randrange(1, 12)
        for tag in order[:size]:
            acks.add(tag)
            done.add(tag)
        del order[:size]
        await asyncio.sleep(0)
        queue.take(connection.take_written())
        assert queue.open == set(range(1, 61)) - done


async def test_what_is_done_in_order_is_told_by_one_frame() -> None:
    connection = FakeConnection()
    faked: Any = connection
    acks = Acks(faked, _any(FakeChannel()))
    for tag in (3, 1, 2):
        acks.add(tag)
    await asyncio.sleep(0)
    [(_, payload)] = connection.take_written()
    assert struct.unpack_from(">QB", payload, 4) == (3, 1)
    acks.add(4)
    acks.close()
    await asyncio.sleep(0)
    assert connection.take_written() == []
