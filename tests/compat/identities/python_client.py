"""The official RocketMQ client for Python with access keys of identities: what is allowed works, the rest is refused.

``python -m tests.compat.identities.python_client``: two keys of different rights on one broker, a wrong secret, and a
key that is removed while its client runs. The broker's refusal names the right that is missing; the client may show a
text of its own.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer
from tarry.client import Client
from tests.compat.rocketmq.servers import tarry_server
from tests.rocketmq.rpc import Code, Rpc, signed

GRANTS = {"billing": ["produce orders-*"], "mailer": ["consume orders-* group:mailers"]}
TOPIC = "orders-new"
"""Without a dot, which this client takes in no topic."""
REQUEST_S = 15
REMOVED_S = 3.0
"""Within which a removed key has to be refused; the page says a second, and this machine may be busy."""


class Clients:
    """The official client's, for one broker."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.port = int(endpoint.rpartition(":")[2])

    def _configuration(self, key: str, secret: str) -> ClientConfiguration:
        return ClientConfiguration(self._endpoint, Credentials(key, secret), "", REQUEST_S)

    def producer(self, key: str, secret: str, topic: str = TOPIC) -> Any:
        client = Producer(self._configuration(key, secret), (topic,))
        client.startup()
        return client

    def send(self, key: str, secret: str, topic: str = TOPIC) -> None:
        client = self.producer(key, secret, topic)
        try:
            client.send(message(topic))
        finally:
            client.shutdown()

    def receive(self, key: str, secret: str, group: str, topic: str = TOPIC) -> list[bytes]:
        client = SimpleConsumer(self._configuration(key, secret), group, {topic: FilterExpression()}, 3)
        client.startup()
        try:
            found = client.receive(16, 30) or []
            for each in found:
                client.ack(each)
            return [bytes(each.body) for each in found]
        finally:
            client.shutdown()


def message(topic: str) -> Any:
    made = Message()
    made.topic, made.body = topic, b"hello"
    return made


def refused(call: Callable[[], object]) -> str:
    """Return what the client raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever the client raises is a refusal
        return str(error)
    raise AssertionError("it was not refused")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="tarry-identities-") as fresh, tarry_server(Path(fresh)) as server:
        with Client(str(server.flight)) as first:
            first.set_identity("admin", ["admin"])
            token = first.add_credential("admin").secret
        with Client(str(server.flight), token=token) as admin:
            ids = {}
            for name, lines in GRANTS.items():
                admin.set_identity(name, lines)
                made = admin.add_credential(name, kind="access_key", access_key=name, secret=f"secret-of-{name}")
                ids[name] = made.id
            _tried(Clients(server.endpoint), admin, ids)
    return 0


def _tried(clients: Clients, admin: Client, ids: dict[str, str]) -> None:
    billing, mailer = (("billing", "secret-of-billing"), ("mailer", "secret-of-mailer"))
    clients.send(*billing)
    said("billing sends to orders-new", "done")
    got = clients.receive(*mailer, "mailers")
    assert got == [b"hello"], got
    said("mailer receives as mailers", "done")
    for what, names, call in (
        ("billing sends to stock-new", "produce", lambda: clients.send(*billing, "stock-new")),
        ("billing receives as mailers", "consume", lambda: clients.receive(*billing, "mailers")),
        ("mailer sends to orders-new", "produce", lambda: clients.send(*mailer)),
        ("mailer receives as others", "consume", lambda: clients.receive(*mailer, "others")),
        ("a wrong secret", "signature", lambda: clients.send("billing", "wrong")),
        ("a key of nobody", "nobody", lambda: clients.send("nobody", "wrong")),
    ):
        text = refused(call)
        said(what, text if names in text else f"{text} (the client does not show the broker's text)")
    _say_why(clients.port, billing, mailer)
    _remove(clients, admin, billing, ids)


def _say_why(port: int, billing: tuple[str, str], mailer: tuple[str, str]) -> None:
    """The broker's own texts, by raw calls: this client shows its own where a route is refused."""
    for key, topic, right in ((billing, "stock-new", "produce"), (mailer, TOPIC, "produce")):
        client = Rpc(port, headers=signed(*key), shared=False)
        status = client.send(topic).status
        client.close()
        said(f"the broker to {key[0]}, sending to {topic}", status.message)
        assert status.code == Code.FORBIDDEN and right in status.message, status


def _remove(clients: Clients, admin: Client, billing: tuple[str, str], ids: dict[str, str]) -> None:
    running = clients.producer(*billing)
    try:
        running.send(message(TOPIC))
        admin.remove_credential(ids["billing"])
        begun = time.monotonic()
        while True:
            assert time.monotonic() < begun + REMOVED_S, "a removed key is still taken"
            try:
                running.send(message(TOPIC))
            except Exception as error:  # noqa: BLE001 - whatever the client raises is a refusal
                said("a removed key, while its client runs", f"{error} (after {time.monotonic() - begun:.2f} s)")
                break
    finally:
        running.shutdown()


def said(what: str, text: str) -> None:
    print(f"{what}: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
