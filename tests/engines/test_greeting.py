"""What the greeting of the link says of an owner of the logs, and what clients make of it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from loopgrpc import UnreadBytes
from tarry.base.errors import UnavailableError
from tarry.client import Client, connection
from tarry.fronts.link.front import LinkFront
from tarry.link import places
from tarry.testing import TestBroker
from tests.engines.test_broker import Machines
from tests.link.raw_client import RawClient
from tests.waiting import wait_until


def serve(broker: TestBroker, address: str, stack: ExitStack) -> LinkFront:
    front = LinkFront.start(broker, address, unread=UnreadBytes(64 << 20))
    stack.callback(front.stop, 0.0)
    return front


def is_refused(client: Client) -> bool:
    """Whether the client has noticed the end of its connection, and looked for another one."""
    with pytest.raises(UnavailableError) as refused:
        client.status()
    return refused.value.nothing_sent


def test_an_owner_of_before_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIND_S", 0.3)
    monkeypatch.setattr(places, "FIND_S", 0.3)
    machines = Machines(tmp_path, "objects")
    with ExitStack() as stack:
        stack.callback(machines.close)
        first, at_first, at_second = machines.broker(), ExitStack(), ExitStack()
        stack.enter_context(at_first)
        stack.enter_context(at_second)
        one = serve(first, "127.0.0.1:0", at_first).address
        second = machines.broker()
        other = serve(second, "127.0.0.1:0", at_second).address
        for address, epoch in ((one, 1), (other, 2)):
            with RawClient(address) as raw:
                assert raw.welcome["epoch"] == epoch
        at_first.close()
        with Client(f"{one},{other}") as client:
            assert client.status()["log"]["epoch"] == 2
            at_second.close()
            wait_until(lambda: is_refused(client))
            serve(first, one, at_first)  # it does not know yet
            with pytest.raises(UnavailableError, match=f"{one}: an owner of before: its epoch is 1, and 2 was seen"):
                client.status()
