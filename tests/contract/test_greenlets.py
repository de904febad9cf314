"""A client in a program whose threads are greenlets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.contract.conftest import Served

from tarry.base.errors import InvalidArgumentError
from tarry.client import background

PROGRAM = """
from gevent import monkey
monkey.patch_all()
import sys
import gevent
from tarry import Client

client, turns, got = Client(sys.argv[1]), [], []

def turn():
    while True:
        turns.append(1)
        gevent.sleep(0.01)

def send(number):
    for each in range(4):
        client.schedule("orders", f"{number}-{each}", delay=0)

def handle():
    for message in client.consume("orders", group="billing", timeout=60):
        with message:
            got.append(message.body)
        if len(set(got)) == 20:
            return

turning = gevent.spawn(turn)
gevent.joinall([gevent.spawn(send, number) for number in range(5)], raise_error=True)
before = len(turns)
handling = gevent.spawn(handle)
handling.join()
turning.kill()
client.close()
print(len(got), before > 0, len(turns) > before)
"""


def test_a_client_waits_as_a_greenlet_and_others_go_on(tmp_path: Path) -> None:
    served = Served(tmp_path / "data")
    try:
        command = [sys.executable, "-c", PROGRAM, served.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    finally:
        served.stop()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["20", "True", "True"]


def test_threads_of_eventlet_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "eventlet.patcher", SimpleNamespace(is_monkey_patched=lambda name: True))
    monkeypatch.setattr(background, "_running", {})
    with pytest.raises(InvalidArgumentError, match="eventlet"):
        background.background_loop()
