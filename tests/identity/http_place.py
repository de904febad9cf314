"""The HTTP front of a broker with identities, and requests with one token or another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tarry.broker import Broker
from tarry.fronts.http.front import HttpFront


class HttpPlace:
    """The broker, its front, and a client that shows no token by itself."""

    def __init__(self, broker: Broker, front: HttpFront, http: httpx.Client) -> None:
        self.broker = broker
        self.front = front
        self.http = http
        self._made = 0

    def token(self, *grants: str) -> str:
        """A token of a new identity with these rights."""
        self._made += 1
        name = f"somebody-{self._made}"
        self.broker.set_identity(name, list(grants))
        return self.broker.add_credential(name).secret

    def ask(self, method: str, path: str, token: str | None = None, **more: Any) -> httpx.Response:
        headers = {**({} if token is None else {"authorization": f"Bearer {token}"}), **more.pop("headers", {})}
        return self.http.request(method, path, headers=headers, **more)

    def status(self, method: str, path: str, token: str | None = None, **more: Any) -> int:
        return self.ask(method, path, token, **more).status_code


@contextmanager
def serving(broker: Broker, address: str = "127.0.0.1:0") -> Iterator[HttpPlace]:
    with (
        HttpFront.start(broker, address) as front,
        httpx.Client(base_url=f"http://{front.address}", timeout=30) as http,
    ):
        yield HttpPlace(broker, front, http)


def forget(broker: Broker, identity: str) -> None:
    """Remove all credentials of an identity, and leave it."""
    for each in broker.list_identities():
        for credential in each.credentials if each.name == identity else ():
            broker.remove_credential(credential.id)
