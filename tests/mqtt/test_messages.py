"""A PUBLISH as a row: its options are those of the table, whichever there are."""

from __future__ import annotations

from typing import Any

import pytest

from tarry.base.errors import InvalidArgumentError
from tarry.fronts.mqtt.messages import QOS, later, row_of_publish
from tarry.fronts.mqtt.packets import PublishPacket
from tarry.fronts.mqtt.wire import USER
from tarry.message.options import OPTIONS, Option, OptionKind
from tarry.message.rows import PLACES, Row

TEXTS = {OptionKind.TEXT: "x", OptionKind.DURATION: "1h", OptionKind.RULE: '{"every": "1m"}'}
SAID = [option for option in OPTIONS if option.kind is not OptionKind.TEXTS]


def row_of(topic: str = "t", qos: int = 1, user: Any = (), **properties: Any) -> Row:
    return row_of_publish(PublishPacket(topic, b"x", qos, properties={USER: list(user), **properties}))


def cell(row: Row, name: str) -> Any:
    return row[PLACES[name]]


@pytest.mark.parametrize("option", SAID, ids=lambda option: option.name)
def test_every_option_is_a_user_property(option: Option) -> None:
    choices = [word for word in option.choices if word != option.default]
    text = choices[0] if choices else TEXTS.get(option.kind, str(option.low))
    row = row_of(
        user=[("tarry.key", "k"), (f"tarry.{option.name}", text)] if option.name != "key" else [("tarry.key", "x")]
    )
    assert cell(row, option.column) is not None


def test_a_trace_is_a_user_property() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert dict(cell(row_of(user=[("traceparent", parent)]), "properties"))["traceparent"] == parent


def test_times() -> None:
    assert cell(row_of("$delayed/5/t"), "delay_ms") == 5000
    assert cell(row_of(user=[("tarry.delay_ms", "7")]), "delay_ms") == 7
    assert cell(row_of(user=[("tarry.delay", "1h")]), "delay_ms") == 3_600_000
    assert cell(row_of(user=[("tarry.due_ms", "1900000000000")]), "due_ms") == 1_900_000_000_000
    assert cell(row_of(message_expiry_s=0), "ttl_ms") == 1


@pytest.mark.parametrize(
    "user",
    [
        [("tarry.colour", "red")],
        [("tarry.key", "a"), ("tarry.key", "b")],
        [("tarry.tries", "many")],
        [("tarry.delay_ms", "9" * 19)],
        [("tarry.delay_ms", "-1")],
        [("tarry.delay_ms", "5"), ("tarry.due_ms", "5")],
        [("tarry.properties", "x")],
    ],
)
def test_what_is_no_option_is_refused(user: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidArgumentError):
        row_of(user=user)


def test_two_delays_are_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        row_of("$delayed/5/t", user=[("tarry.delay", "5s")])


def test_a_will_is_put_off_with_its_ttl() -> None:
    row = later(row_of(message_expiry_s=10), 2000)
    assert (cell(row, "delay_ms"), cell(row, "ttl_ms")) == (2000, 12_000)
    assert later(row_of_publish(PublishPacket("t", b"x", 1)), 500)[PLACES["delay_ms"]] == 500


def test_a_message_of_qos_0_says_so() -> None:
    assert cell(row_of(qos=0, user=[("a", "b")]), "properties") == [(QOS, "0"), ("a", "b")]
    assert cell(row_of_publish(PublishPacket("t", b"x")), "properties") == [(QOS, "0")]
