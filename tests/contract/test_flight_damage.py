"""A damaged file of the ready log, met while consumers are served: they end with the reason.

It would be met again at each new connection: silence would look as if there were no messages.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.contract.conftest import Served
from tests.waiting import wait_until

from tarry.base.errors import CorruptError
from tarry.client import AsyncClient, Client
from tarry.log.frame import HEADER_BYTES
from tarry.log.segment import segment_path

BODY = b"body-1"


def damage(segment: Path) -> None:
    content = bytearray(segment.read_bytes())
    content[content.index(BODY)] ^= 1
    segment.write_bytes(content)


@pytest.fixture
def segment(served: Served) -> Path:
    """The one of the topic ``t``, which has one message; served from disk alone."""
    with Client(served.address) as client:
        client.schedule("t", BODY)
        assert client.receive("t", group="other", wait=10)  # it is in the queue
    served.stop()
    served.start()
    [segment] = (served.config.data / "ready").glob("*.log")
    return segment


def test_a_consumer_that_is_served_ends_with_the_reason(served: Served, segment: Path) -> None:
    with Client(served.address) as client:
        consumer = client.consume("t", group="g", start="latest")
        client.set_group("t", "g", start="latest")
        client.schedule("t", b"body-2")
        message = next(iter(consumer))
        assert message.body == b"body-2"
        message.ack()
        consumer.flush()
        damage(segment)
        client.seek("t", "g", "earliest")
        with pytest.raises(CorruptError, match=str(segment)):
            next(iter(consumer))
        assert next(iter(consumer), None) is None, "it has ended"


def test_an_asyncio_consumer_ends_with_the_reason(served: Served, segment: Path) -> None:
    damage(segment)

    async def main() -> None:
        async with AsyncClient(served.address) as client:
            with pytest.raises(CorruptError, match=str(segment)):
                async for _ in client.consume("t", group="g"):
                    pass

    asyncio.run(main())


def test_a_damaged_frame_ends_consuming_with_its_place_when_what_lies_before_is_settled(tmp_path: Path) -> None:
    served = Served(tmp_path / "data", ready_cache_bytes_max=0, segment_bytes_max=4096)
    try:
        with Client(served.address) as client:
            for number in range(12):
                client.schedule("t", b"%d" % number * 500)
                wait_until(lambda number=number: served.broker.components.ready.topic("t").written == number + 1)
            ready = served.broker.components.ready
            entry = ready.frames_in(0)[1]
            path = segment_path(served.config.data / "ready", 0)
            with path.open("r+b") as file:
                file.seek(entry.position + HEADER_BYTES)
                file.write(b"\xff" * 8)
            received = []
            with (
                client.consume("t", group="g", timeout=60) as consumer,
                pytest.raises(CorruptError, match=f"{path} at offset {entry.position}"),
            ):
                for message in consumer:
                    received.append(message.body)
                    message.ack()
            assert received == [b"%d" % number * 500 for number in range(entry.offset)]
            assert client.group_info("t", "g").lag == 12 - len(received), "and those are settled"
            with pytest.raises(CorruptError, match=str(path)):
                client.receive("t", group="g")
            client.schedule("u", b"other")
            [other] = client.receive("u", group="g", wait=60)
            assert other.body == b"other"
    finally:
        served.stop()
