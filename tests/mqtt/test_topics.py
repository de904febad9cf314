"""Names of MQTT as Tarry's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.fronts.mqtt.reasons import MqttError, Reason
from tarry.fronts.mqtt.topics import GROUP_BYTES_MAX, FilterSource, PublishTarget, group_of, source_of, target_of
from tarry.message.topics import is_topic


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("orders", PublishTarget("orders")),
        ("a/b//c/", PublishTarget("a/b//c/")),
        ("%RETRY%g", PublishTarget("%RETRY%g")),
        ("device:1/°C", PublishTarget("device%3A1/%C2%B0C")),
        ("a~b", PublishTarget("a%7Eb")),
        ("$delayed/15/x/y", PublishTarget("x/y", 15)),
        ("$delayed/0/x", PublishTarget("x", 0)),
        ("$delayed/4294967/x", PublishTarget("x", 4_294_967)),
    ],
)
def test_a_topic_is_tarrys(name: str, target: PublishTarget) -> None:
    assert target_of(name) == target


@pytest.mark.parametrize(
    "name",
    [
        *("", "a/+", "#", "$SYS/a", "$share/g/a", "tarry.halves", "x" * 256, "°" * 50),
        *("$delayed/x/y", "$delayed/-1/y", "$delayed/4294968/y", "$delayed/5/", "$delayed/5", "$delayed/5/$SYS/a"),
    ],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(MqttError) as refused:
        target_of(name)
    assert refused.value.reason is Reason.TOPIC_INVALID


def test_filters() -> None:
    assert source_of("a:b") == FilterSource("a%3Ab")
    assert source_of("$share/billing/orders/eu") == FilterSource("orders/eu", "billing")
    for filter, reason in (
        ("a/+/b", Reason.WILDCARDS_UNSUPPORTED),
        ("$share/g/#", Reason.WILDCARDS_UNSUPPORTED),
        ("$share/g", Reason.FILTER_INVALID),
        ("$share//a", Reason.FILTER_INVALID),
        ("$share/g+/a", Reason.FILTER_INVALID),
        ("$SYS/broker", Reason.FILTER_INVALID),
    ):
        with pytest.raises(MqttError) as refused:
            source_of(filter)
        assert refused.value.reason is reason, filter


@given(st.text(max_size=300))
def test_any_name_is_a_topic_or_refused(name: str) -> None:
    try:
        assert is_topic(target_of(name).topic)
    except MqttError:
        pass


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_client_ids_have_groups_of_their_own(client_id: str) -> None:
    try:
        group = group_of(client_id)
    except MqttError:
        assert len(client_id.encode()) > 80
        return
    assert len(group.encode()) <= GROUP_BYTES_MAX
    assert group.count("@") == 1
    assert group_of(client_id + "@") != group_of(client_id + "%40")
