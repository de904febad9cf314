"""The front with Eclipse Paho's Python client, unchanged, in 3.1.1 and in 5."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.loopgrpc.certificates import make_certificate
from tests.mqtt.place import Mqtt, serving
from tests.waiting import wait_until

paho = pytest.importorskip("paho.mqtt.client")
from paho.mqtt.packettypes import PacketTypes  # noqa: E402
from paho.mqtt.properties import Properties  # noqa: E402

V3, V5 = paho.MQTTv311, paho.MQTTv5
VERSIONS = [pytest.param(V3, id="3.1.1"), pytest.param(V5, id="5")]
WAIT_S = 60


class Client:
    """A client with its loop, and what it has got."""

    def __init__(self, port: int, version: int, client_id: str, *, clean: bool = True, **more: Any) -> None:
        clean_3 = {"clean_session": clean} if version == V3 else {}
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id, protocol=version, reconnect_on_failure=False, **clean_3
        )
        self.messages: queue.Queue[Any] = queue.Queue()
        self.subscribed: queue.Queue[Any] = queue.Queue()
        self.connected: queue.Queue[Any] = queue.Queue()
        self.disconnected = threading.Event()
        self.paho.on_message = lambda client, data, message: self.messages.put(message)
        self.paho.on_subscribe = lambda client, data, mid, codes, properties: self.subscribed.put(codes)
        self.paho.on_connect = lambda client, data, flags, code, properties: self.connected.put((flags, code))
        self.paho.on_disconnect = lambda *_: self.disconnected.set()
        self._port, self._version, self._clean, self._more = port, version, clean, more

    def start(self) -> Client:
        clean_5 = {"clean_start": self._clean} if self._version == V5 else {}
        self.paho.connect("127.0.0.1", self._port, keepalive=30, **clean_5, **self._more)
        self.paho.loop_start()
        self.flags, code = self.connected.get(timeout=WAIT_S)
        assert code == 0, code
        return self

    def subscribe(self, topic: str, qos: int = 1) -> list[int]:
        self.paho.subscribe(topic, qos)
        return [code.value for code in self.subscribed.get(timeout=WAIT_S)]

    def publish(self, topic: str, body: bytes = b"x", qos: int = 1, **more: Any) -> None:
        self.paho.publish(topic, body, qos, **more).wait_for_publish(WAIT_S)

    def get(self) -> Any:
        return self.messages.get(timeout=WAIT_S)

    def die(self) -> None:
        """Lose the connection without a DISCONNECT."""
        sock = self.paho.socket()
        sock.shutdown(socket.SHUT_RDWR)  # which its loop sees at once
        self.paho.loop_stop()
        sock.close()


@contextmanager
def client(port: int, version: int = V5, client_id: str = "me", **more: Any) -> Iterator[Client]:
    made = Client(port, version, client_id, **more).start()
    try:
        yield made
    finally:
        made.paho.disconnect()
        made.paho.loop_stop()


def properties(kind: int, **values: Any) -> Properties:
    made = Properties(kind)
    for name, value in values.items():
        setattr(made, name, value)
    return made


def pending(mqtt: Mqtt, topic: str) -> int:
    return sum(each.pending for each in mqtt.broker.pending() if each.topic == topic)


def publishing(**values: Any) -> Properties:
    return properties(PacketTypes.PUBLISH, **values)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1])
def test_messages_come_in_order(mqtt: Mqtt, version: int, qos: int) -> None:
    with client(mqtt.port, version) as me:
        assert me.subscribe("orders/eu", qos) == [qos]
        for number in range(300):
            me.paho.publish("orders/eu", b"%d" % number, qos)
        got = [me.get() for _ in range(300)]
        assert [message.payload for message in got] == [b"%d" % number for number in range(300)]
        assert {(message.topic, message.qos, message.dup, message.retain) for message in got} == {
            ("orders/eu", qos, False, False)
        }
        wait_until(lambda: mqtt.broker.group_info("orders/eu", "mqtt@me").lag == 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_delayed_topic(mqtt: Mqtt, version: int) -> None:
    with client(mqtt.port, version) as me:
        me.subscribe("reminders")
        before_ms = mqtt.broker.clock.now_ms()
        me.publish("$delayed/1/reminders", b"later")
        message = me.get()
        assert (message.topic, message.payload) == ("reminders", b"later")
        assert mqtt.broker.clock.now_ms() - before_ms >= 1000
        me.publish("$delayed/3600/reminders")
        assert pending(mqtt, "reminders") == 1


def test_options_are_user_properties(mqtt: Mqtt) -> None:
    with client(mqtt.port) as me:
        me.subscribe("orders")
        due_ms = mqtt.broker.clock.now_ms() + 300
        said = [("tarry.due_ms", str(due_ms)), ("tarry.key", "k"), ("tarry.tag", "vip"), ("tarry.order_key", "o")]
        more = publishing(
            UserProperty=[*said, ("tarry.tries", "3"), ("colour", "red")],
            ContentType="text/plain",
            CorrelationData=b"\0\1",
            ResponseTopic="answers",
            PayloadFormatIndicator=1,
            MessageExpiryInterval=1000,
        )
        me.publish("orders", b"x", properties=more)
        assert mqtt.broker.find_key("orders", "k") is not None
        message = me.get()
        got = dict(message.properties.UserProperty)
        assert got.pop("tarry.id") and got.pop("tarry.attempt") == "1"
        assert got == {**dict(said), "tarry.tries": "3", "colour": "red"}
        assert (message.properties.ContentType, message.properties.CorrelationData) == ("text/plain", b"\0\1")
        assert (message.properties.ResponseTopic, message.properties.PayloadFormatIndicator) == ("answers", 1)
        assert 990 <= message.properties.MessageExpiryInterval <= 1000


def test_tarrys_other_faces_see_the_same(mqtt: Mqtt) -> None:
    with client(mqtt.port) as me:
        me.subscribe("$share/billing/orders")
        mqtt.broker.schedule("orders", b"from the API", properties={"a": "b", "content-type": "image/png"}, tag="t")
        message = me.get()
        assert (message.topic, message.payload, message.properties.ContentType) == (
            "orders",
            b"from the API",
            "image/png",
        )
        assert {("a", "b"), ("tarry.tag", "t")} <= set(message.properties.UserProperty)
        mqtt.broker.set_group("answers", "g")
        me.publish("answers", b"from MQTT", properties=publishing(UserProperty=[("a", "b")]))
        batch = mqtt.broker.subscribe("answers", "g").fetch(1, 30)
        assert batch is not None
        [received] = batch.to_pylist()
        assert (received["body"], received["properties"]) == (b"from MQTT", [("a", "b")])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_shared_subscription_shares_and_others_have_all(mqtt: Mqtt, version: int) -> None:
    with (
        client(mqtt.port, version, "one") as one,
        client(mqtt.port, version, "two") as two,
        client(mqtt.port, version, "all") as everything,
    ):
        for each, filter in ((one, "$share/g/jobs"), (two, "$share/g/jobs"), (everything, "jobs")):
            assert each.subscribe(filter) == [1]
        for number in range(100):
            one.publish("jobs", b"%d" % number)
        assert len({everything.get().payload for _ in range(100)}) == 100
        wait_until(lambda: one.messages.qsize() + two.messages.qsize() == 100)
        wait_until(lambda: mqtt.broker.group_info("jobs", "g").lag == 0)


def test_a_message_of_qos_0_is_delivered_with_0(mqtt: Mqtt) -> None:
    with client(mqtt.port) as me:
        me.subscribe("a", 1)
        me.publish("a", qos=0)
        assert me.get().qos == 0
        assert me.subscribe("b", 2) == [1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_waits_for_its_client(mqtt: Mqtt, version: int) -> None:
    kept = {"properties": properties(PacketTypes.CONNECT, SessionExpiryInterval=1000)} if version == V5 else {}
    with client(mqtt.port, version, clean=False, **kept) as me:
        me.subscribe("a")
    for number in range(3):
        mqtt.broker.schedule("a", b"%d" % number)
    with client(mqtt.port, version, clean=False, **kept) as me:
        assert me.flags.session_present
        assert [me.get().payload for _ in range(3)] == [b"0", b"1", b"2"]
        wait_until(lambda: mqtt.broker.group_info("a", "mqtt@me").lag == 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_will_comes_unless_the_client_leaves(mqtt: Mqtt, version: int) -> None:
    with client(mqtt.port, version, "watcher") as watcher:
        watcher.subscribe("gone")
        for dies in (False, True):
            mortal = Client(mqtt.port, version, "mortal")
            mortal.paho.will_set("gone", b"died" if dies else b"left", 1)
            mortal.start()
            if dies:
                mortal.die()
            else:
                mortal.paho.disconnect()
                mortal.paho.loop_stop()
        assert watcher.get().payload == b"died"


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_delayed_will_is_not_sent_if_the_client_comes_back(mqtt: Mqtt, comes_back: bool) -> None:
    kept = {"properties": properties(PacketTypes.CONNECT, SessionExpiryInterval=1000)}
    with client(mqtt.port, V5, "watcher") as watcher:
        watcher.subscribe("gone")
        mortal = Client(mqtt.port, V5, "mortal", clean=False, **kept)
        mortal.paho.will_set("gone", b"died", 1, properties=properties(PacketTypes.WILLMESSAGE, WillDelayInterval=1))
        mortal.start().die()
        wait_until(lambda: pending(mqtt, "gone") == 1)
        if comes_back:
            with client(mqtt.port, V5, "mortal", clean=False, **kept):
                assert pending(mqtt, "gone") == 0
        else:
            assert watcher.get().payload == b"died"


def test_a_retained_message(mqtt: Mqtt) -> None:
    with client(mqtt.port, V3) as old:
        old.subscribe("a")
        old.publish("a", b"x", retain=True)
        message = old.get()
        assert (message.payload, message.retain) == (b"x", False)
    new = Client(mqtt.port, V5, "new").start()
    new.paho.publish("a", b"x", 1, retain=True)
    assert new.disconnected.wait(WAIT_S)
    new.paho.loop_stop()


def test_tls(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    files = {"tls_certificate": str(certificate.certificate), "tls_key": str(certificate.key)}
    with serving(tmp_path / "data", **files) as mqtt:
        me = Client(mqtt.port, V5, "me")
        me.paho.tls_set_context(certificate.client_context())
        me.paho.tls_insecure_set(True)
        me.start()
        me.subscribe("a")
        me.publish("a", b"secret")
        assert me.get().payload == b"secret"
        me.paho.disconnect()
        me.paho.loop_stop()


def test_many_clients_at_once(mqtt: Mqtt) -> None:
    made = [Client(mqtt.port, V5 if number % 2 else V3, f"c{number}").start() for number in range(20)]
    for number, each in enumerate(made):
        each.subscribe(f"t/{number}")
    for number in range(400):
        made[number % 20].paho.publish(f"t/{(number + 1) % 20}", b"%d" % number, 1)
    for each in made:
        assert len({each.get().payload for _ in range(20)}) == 20
        each.paho.disconnect()
        each.paho.loop_stop()
