"""A damaged file of the ready log, met while consumers are served: they end with the reason.

It would be met again at each new connection: silence would look as if there were no messages.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.contract.conftest import Served

from tarry.base.errors import CorruptError
from tarry.client import AsyncClient, Client

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
