"""MQTT clients as identities: who connects, by what, and what it may publish and subscribe."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.mqtt.place import (
    PUBACK,
    PUBLISH,
    SUBACK,
    VERSIONS,
    Mqtt,
    Raw,
    connect,
    publish,
    serving,
    subscribe,
    unsubscribe,
)
from tests.waiting import wait_until

from tarry.api.operations import GetQueues
from tarry.fronts.mqtt import sessions
from tarry.fronts.mqtt.packets import V3, V5
from tarry.fronts.mqtt.reasons import Reason
from tarry.fronts.mqtt.wire import text_bytes

GRANTS = {
    "shop": ["produce orders/*", "consume orders/*"],
    "other": ["produce stock/*", "consume stock/* group:keepers"],
}
USER, PASSWORD = 0x80, 0x40
LATE_S = 10.0


class Known:
    """The front, and tokens and access keys of its identities."""

    def __init__(self, mqtt: Mqtt) -> None:
        self.mqtt, self.broker = mqtt, mqtt.broker
        self.tokens: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        for name, grants in {"root": ["admin"], **GRANTS}.items():
            self.broker.set_identity(name, grants)
            issued = self.broker.add_credential(name)
            self.tokens[name], self.ids[name] = issued.secret, issued.id
        self.key = self.broker.add_credential("shop", kind="access_key", access_key="shop-key", secret="s3cret-key")

    def raw(self, name: str, version: int = V5, **more: Any) -> Raw:
        """A client that has shown its token."""
        raw = self.mqtt.raw()
        more.setdefault("client_id", name)
        assert raw.connect(version, **shown("", self.tokens[name]), **more)[1] == 0
        return raw


def shown(user: str | None, password: str, flags: int = 0, will: bytes = b"") -> dict[str, Any]:
    rest = will + (b"" if user is None else text_bytes(user)) + text_bytes(password)
    return {"flags": flags | PASSWORD | (0 if user is None else USER), "rest": rest}


def ends(known: Known, topic: str) -> tuple[int, int]:
    return known.broker.call(GetQueues([topic]))[topic]


@pytest.fixture
def known(tmp_path: Path) -> Iterator[Known]:
    with serving(tmp_path) as mqtt:
        yield Known(mqtt)


@pytest.mark.parametrize("version", VERSIONS)
def test_who_is_not_known_does_not_come_in(known: Known, version: int) -> None:
    token = known.tokens["shop"]
    refused = Reason.BAD_LOGIN if version == V5 else 5
    for login in (
        {},
        shown("", "tarry_none"),
        shown("other", token),
        shown("shop-key", "wrong-secret"),
        shown("unknown", "s3cret-key"),
        shown("", "s3cret-key"),
        shown("shop", token[:-1]),
    ):
        with known.mqtt.raw() as raw:
            assert raw.connect(version, **login)[1] == refused
            assert raw.packet() is None
    for login in (shown("shop", token), shown("", token), shown("shop-key", "s3cret-key")):
        with known.mqtt.raw() as raw:
            assert raw.connect(version, **login)[1] == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_an_access_token_is_a_credential_beside_identities(known: Known, version: int) -> None:
    token, narrow = known.broker.create_token("*"), known.broker.create_token("stock")
    for user in ("", "whoever"):
        with known.mqtt.raw() as raw:
            assert raw.connect(version, client_id="whole", **shown(user, token.secret))[1] == 0
    with known.mqtt.raw() as raw:
        assert raw.connect(V5, client_id="narrow", **shown("", narrow.secret))[1] == 0
        for number, (topic, reason) in enumerate(
            (("stock/new", Reason.SUCCESS), ("orders/new", Reason.NOT_AUTHORIZED)), start=1
        ):
            raw.send(publish(topic, packet_id=number))
            answer = raw.expect(PUBACK)
            assert (answer[2] if len(answer) > 2 else 0) == reason, topic
    assert ends(known, "orders/new") == (0, 0)


def test_messages_need_produce_on_the_topic_behind_the_delay(known: Known) -> None:
    with known.raw("shop") as raw:
        for number, (topic, reason) in enumerate(
            (
                ("orders/new", Reason.SUCCESS),
                ("stock/new", Reason.NOT_AUTHORIZED),
                ("$delayed/60/orders/new", Reason.SUCCESS),
                ("$delayed/60/stock/new", Reason.NOT_AUTHORIZED),
                ("$delayed/0/stock/new", Reason.NOT_AUTHORIZED),
            ),
            start=1,
        ):
            raw.send(publish(topic, packet_id=number))
            answer = raw.expect(PUBACK)
            assert (answer[2] if len(answer) > 2 else 0) == reason, topic
        # Nobody is told of what is lost, and nothing is scheduled.
        raw.send(publish("stock/new", qos=0), publish("orders/new", packet_id=9))
        raw.expect(PUBACK)
    assert {each.topic for each in known.broker.pending() if each.pending} == {"orders/new"}
    assert ends(known, "stock/new") == (0, 0)


def test_3_1_1_has_no_answer_to_what_is_forbidden_but_the_end(known: Known) -> None:
    with known.raw("shop", V3) as raw:
        raw.send(publish("stock/new", version=V3))
        assert raw.packet() is None


@pytest.mark.parametrize("version", VERSIONS)
def test_subscriptions_need_consume_on_topic_and_group(known: Known, version: int) -> None:
    refused = Reason.NOT_AUTHORIZED if version == V5 else 0x80
    asked = {"shop": (("orders/new", 1), ("$share/any/orders/new", 1), ("stock/new", refused))}
    asked["other"] = (("stock/new", refused), ("$share/keepers/stock/new", 1), ("$share/any/stock/new", refused))
    for name, filters in asked.items():
        with known.raw(name, version) as raw:
            for filter, reason in filters:
                raw.send(subscribe(filter, version=version))
                assert raw.expect(SUBACK)[-1] == reason, filter
    assert {(info.topic, info.group) for info in known.broker.groups() if info.group == "any"} == {
        ("orders/new", "any")
    }


def test_a_will_needs_produce(known: Known) -> None:
    will_flags = 0x04

    def will(topic: str) -> bytes:
        return b"\0" + text_bytes(topic) + text_bytes("gone")

    for topic, reason in (("stock/wills", Reason.NOT_AUTHORIZED), ("orders/wills", 0)):
        with known.mqtt.raw() as raw:
            login = shown(None, known.tokens["shop"], will_flags, will(topic))
            assert raw.connect(client_id="w", **login)[1] == reason
    wait_until(lambda: ends(known, "orders/wills")[1] == 1)
    assert ends(known, "stock/wills") == (0, 0)


def test_a_session_is_its_callers_own(known: Known) -> None:
    """Another identity's client of the same id has a session of its own: neither gets, ends or deletes the other's."""
    known.broker.set_identity("other", ["consume stock/*"])
    kept = {"client_id": "c", "clean": False, "properties": {"session_expiry_s": 600}}
    with known.raw("shop", **kept) as raw:
        raw.send(subscribe("orders/new"))
        assert raw.expect(SUBACK)[-1] == 1
        for clean in (True, False):
            with known.mqtt.raw() as thief:
                login = shown(None, known.tokens["other"])
                assert tuple(thief.connect(client_id="c", clean=clean, **login)[:2]) == (0, 0)
                thief.send(subscribe("stock/new"))
                assert thief.expect(SUBACK)[-1] == 1
                assert ("stock/new", "mqtt@c@other") in {(i.topic, i.group) for i in known.broker.groups()}
        raw.send(publish("orders/new", b"mine"))
        kinds = {packet[0] >> 4 for packet in (raw.packet(), raw.packet()) if packet is not None}
        assert kinds == {PUBACK, PUBLISH}
        raw.send(unsubscribe("orders/new"))
        assert raw.packet() is not None
    with known.mqtt.raw() as thief:  # its client is away
        assert tuple(thief.connect(client_id="c", **shown(None, known.tokens["other"]))[:2]) == (0, 0)
    with known.mqtt.raw() as raw:
        assert tuple(raw.connect(**kept, **shown(None, known.tokens["shop"]))[:2]) == (1, 0)


def test_one_identity_has_a_part_of_the_kept_sessions(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "AWAY_MAX", 8)
    kept = {"clean": False, "properties": {"session_expiry_s": 600}}
    answers = []
    for number in range(3):
        with known.mqtt.raw() as raw:
            answers.append(raw.connect(client_id=f"c{number}", **kept, **shown(None, known.tokens["shop"]))[1])
    assert answers == [0, 0, Reason.QUOTA_EXCEEDED]
    with known.mqtt.raw() as raw:
        assert raw.connect(client_id="other", **kept, **shown(None, known.tokens["other"]))[1] == 0


def test_a_session_of_a_former_run_is_for_who_may_consume_it(tmp_path: Path) -> None:
    kept = {"client_id": "c", "clean": False, "properties": {"session_expiry_s": 600}}
    with serving(tmp_path) as mqtt, Known(mqtt).raw("shop", **kept) as raw:
        raw.send(subscribe("orders/new"))
        assert raw.expect(SUBACK)[-1] == 1
    with serving(tmp_path) as mqtt:
        broker = mqtt.broker
        tokens = {name: broker.add_credential(name).secret for name in ("shop", "other")}
        with mqtt.raw() as thief:
            assert tuple(thief.connect(client_id="c", **shown(None, tokens["other"]))[:2]) == (0, 0)
        assert ("orders/new", "mqtt@c") in {(info.topic, info.group) for info in broker.groups()}
        with mqtt.raw() as owner:
            assert owner.connect(client_id="c", clean=False, **shown(None, tokens["shop"]))[1] == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_removed_credential_ends_its_connections(known: Known, version: int) -> None:
    with known.raw("shop", version) as raw, known.mqtt.raw() as by_key, known.raw("other", version) as other:
        assert by_key.connect(version, client_id="k", **shown("shop-key", "s3cret-key"))[1] == 0
        known.broker.remove_credential(known.ids["shop"])
        began_s = time.monotonic()
        assert raw.closes_with() == (Reason.NOT_AUTHORIZED if version == V5 else None)
        assert time.monotonic() - began_s < LATE_S
        known.broker.remove_credential(known.key.id)
        assert by_key.closes_with() == (Reason.NOT_AUTHORIZED if version == V5 else None)
        other.send(publish("stock/new", version=version))
        other.expect(PUBACK)


def test_the_first_identity_ends_connections_of_nobody(tmp_path: Path) -> None:
    with serving(tmp_path) as mqtt, mqtt.raw() as raw:
        assert raw.connect()[1] == 0
        Known(mqtt)
        assert raw.closes_with() == Reason.NOT_AUTHORIZED
        with mqtt.raw() as again:
            again.send(connect())
            packet = again.packet()
            assert packet is not None
            assert packet[1][1] == Reason.BAD_LOGIN


@pytest.mark.parametrize("version", [3, 5])
def test_paho_with_two_identities(known: Known, version: int) -> None:
    paho = pytest.importorskip("paho.mqtt.client")
    protocol = paho.MQTTv311 if version == 3 else paho.MQTTv5
    told: queue.Queue[tuple[str, Any]] = queue.Queue()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho", protocol=protocol)
    client.username_pw_set("shop", known.tokens["shop"])
    client.on_connect = lambda *found: told.put(("connect", found[3]))
    client.on_subscribe = lambda *found: told.put(("subscribe", [code.is_failure for code in found[3]]))
    client.on_message = lambda *found: told.put(("message", found[2].payload))
    client.connect("127.0.0.1", known.mqtt.port)
    client.loop_start()
    try:
        assert told.get(timeout=30)[1] == 0
        client.subscribe([("orders/new", 1), ("stock/new", 1)])
        assert told.get(timeout=30) == ("subscribe", [False, True])
        client.publish("orders/new", b"by paho", qos=1).wait_for_publish(30)
        assert told.get(timeout=30) == ("message", b"by paho")
    finally:
        client.disconnect()
        client.loop_stop()
