"""The line between the relay's driver and its tasks: who does not show the key is not waited for."""

from __future__ import annotations

import queue
import socket
from contextlib import closing
from typing import Any

import pytest

from tarry_relay import line as module
from tarry_relay.line import Channel, Lines


def test_a_stranger_who_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GREETING_S", 1)
    met: queue.Queue[tuple[Channel, Any]] = queue.Queue()
    with closing(Lines("127.0.0.1", "127.0.0.1", lambda line, hello: met.put((line, hello)))) as lines:
        with socket.create_connection((lines.address.host, lines.address.port), 30) as stranger:
            while stranger.recv(1024):
                pass
        with closing(Channel.connect(lines.address, "me")) as task:
            line, hello = met.get(timeout=30)
            assert hello == "me"
            assert not line.waits(1.5), "who has shown the key may be silent"
            task.send("late")
            assert line.receive() == "late"
            line.close()
