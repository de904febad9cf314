"""What the bridge does with a message that it cannot handle, without a RabbitMQ."""

from __future__ import annotations

from typing import Any

import pytest

from tarry.bridge import taking
from tarry.bridge.amqp_fields import AmqpProperties
from tarry.bridge.amqp_message import AmqpTarget, Incoming
from tarry.bridge.settings import BridgeFigures, BridgeSettings
from tarry.bridge.taking import Taking

pytestmark = pytest.mark.asyncio


class Out:
    """Where messages are put aside."""

    def __init__(self) -> None:
        self.published: list[tuple[AmqpProperties, bytes, AmqpTarget]] = []

    async def publish(self, raw: bytes, body: bytes, target: AmqpTarget) -> None:
        self.published.append((AmqpProperties.decode(raw), body, target))


async def test_what_fails_for_a_reason_of_ours_is_put_aside_and_keeps_no_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr(taking, "row_of", fail)
    out, figures = Out(), BridgeFigures()
    faked: Any = None
    place: Any = out
    await Taking(BridgeSettings(url="amqp://"), faked, figures, faked, place)._take_or_refuse(  # noqa: SLF001
        Incoming(AmqpProperties().encode(), b"body", "orders.delayed", "new", 1)
    )
    [(properties, body, target)] = out.published
    assert (body, target) == (b"body", AmqpTarget("", "tarry.delay.refused"))
    assert properties.header("x-tarry-refused") == "it cannot be handled: KeyError('a mistake')"
    assert figures.refused == 1 and "is put aside" in caplog.text


@pytest.mark.parametrize("routing_key", ["new", "k\udcff"])
async def test_a_refused_message_is_told_by_its_id_where_its_properties_are_too_large_to_keep(
    routing_key: str, caplog: pytest.LogCaptureFixture
) -> None:
    properties = AmqpProperties()
    properties.set_text("message_id", "large")
    properties.set_header("x-delay", "soon")
    properties.set_header("of", "x" * 130_000)
    out, faked = Out(), None
    place: Any = out
    none: Any = faked
    await Taking(BridgeSettings(url="amqp://"), none, BridgeFigures(), none, place)._take_or_refuse(  # noqa: SLF001
        Incoming(properties.encode(), b"body", "orders.delayed", routing_key, 1)
    )
    assert "message large, published to exchange 'orders.delayed'" in caplog.text
    [(kept, _, _)] = out.published
    assert list(kept.headers) == [b"x-tarry-refused"]
