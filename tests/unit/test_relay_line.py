"""The line between the relay's driver and its tasks: who does not show the key is not waited for."""

from __future__ import annotations

import queue
import socket
from collections import Counter
from contextlib import closing
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.api.jobs import StagedFile
from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.base.histogram import Histogram
from tarry_relay import line as module
from tarry_relay.clients import FencedError
from tarry_relay.files import Reached
from tarry_relay.line import Channel, Lines
from tarry_relay.messages import Hello, Message, ShardProgress, StopOrder, TaskQuery, decode, encode
from tarry_relay.positions import OffsetRange
from tarry_relay.schedule import SchedulePlan, ShardResult


def test_a_stranger_who_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GREETING_S", 0.4)
    met: queue.Queue[tuple[Channel, Any]] = queue.Queue()
    with closing(Lines("127.0.0.1", "127.0.0.1", lambda line, hello: met.put((line, hello)))) as lines:
        with socket.create_connection((lines.address.host, lines.address.port), 30) as stranger:
            while stranger.recv(1024):
                pass
        me = Hello(TaskQuery.DELIVER, 3)
        with closing(Channel.connect(lines.address, me)) as task:
            line, hello = met.get(timeout=30)
            assert hello == me
            assert not line.waits(0.6), "who has shown the key may be silent"
            task.send(ShardProgress(Reached(7, 8)))
            assert line.receive() == ShardProgress(Reached(7, 8))
            line.close()


def test_a_stranger_who_says_a_byte_now_and_then_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GREETING_S", 1.0)
    with (
        closing(Lines("127.0.0.1", "127.0.0.1", lambda line, hello: None)) as lines,
        socket.create_connection((lines.address.host, lines.address.port), 30) as stranger,
    ):
        stranger.settimeout(0.2)
        stranger.sendall((200).to_bytes(4, "big"))
        for _ in range(100):
            try:
                stranger.sendall(b"x")
                if not stranger.recv(1024):
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
        pytest.fail("it is still there")


def test_many_strangers_are_cut_off_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GREETING_MAX", 1)
    with closing(Lines("127.0.0.1", "127.0.0.1", lambda line, hello: None)) as lines:
        address = (lines.address.host, lines.address.port)
        with socket.create_connection(address, 30) as first:
            assert first.recv(1024), "the challenge"
            with socket.create_connection(address, 30) as second:
                assert not second.recv(1024)


def test_what_is_said_is_never_unpickled(tmp_path: Path) -> None:
    """Whoever has the key, or is on the path, cannot have code run by what it sends."""
    met: queue.Queue[str] = queue.Queue()
    ran = tmp_path / "ran"

    def on_line(line: Channel, hello: Message) -> None:
        try:
            line.receive()
        except InvalidArgumentError as error:
            met.put(str(error))

    with closing(Lines("127.0.0.1", "127.0.0.1", on_line)) as lines:
        address = lines.address
        with closing(Client((address.host, address.port), authkey=address.key)) as peer:
            peer.send_bytes(encode(Hello(TaskQuery.SCHEDULE, 0)))
            peer.send(Bomb(ran))
            assert "JSON" in met.get(timeout=30)
    assert not ran.exists()


class Bomb:
    """A pickle of it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return self.path.touch, ()


def lateness(*values: int) -> Histogram:
    histogram = Histogram()
    histogram.record(values)
    return histogram


FILE = StagedFile("a/b.parquet", 0, "h", 3, 99, 1, 2, 3, 4, "a", "b")
RESULT = ShardResult(2, Counter(sent=np.int64(3)), [FILE], lateness(-1, 5, 700))


@pytest.mark.parametrize(
    "message",
    [
        None,
        Hello(TaskQuery.SCHEDULE, 1),
        SchedulePlan(1, -5, (OffsetRange("t", 0, 7, 1, 9), OffsetRange("ü", 1, 8, 0, 1 << 62))),
        StopOrder(12),
        ShardProgress(Reached(1, 2)),
    ],
)
def test_messages_are_the_same_behind_the_line(message: Message) -> None:
    assert decode(encode(message)) == message


def test_results_and_errors_are_the_same_behind_the_line() -> None:
    for got in (decode(encode(RESULT)), decode(encode(ShardProgress(Reached(1, 2), (RESULT,)))).results[0]):  # type: ignore[union-attr]
        assert isinstance(got, ShardResult)
        assert (got.shard, got.counts, got.files) == (RESULT.shard, RESULT.counts, RESULT.files)
        assert got.lateness_ms.to_json() == RESULT.lateness_ms.to_json()
        assert got.counts["none"] == 0
    for error in (FencedError("taken over"), InvalidArgumentError("x is 1"), UnavailableError("gone")):
        got = decode(encode(error))
        assert (type(got), str(got)) == (type(error), str(error))
    got = decode(encode(OSError(28, "No space left on device", "/x")))
    assert isinstance(got, OSError)
    assert "No space left on device: '/x'" in str(got)


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b'{"hello":{}}', b'{"hello":1}', b'{"none":{}}', b'{"a":1,"b":2}', b"\x80\x04."]
)
def test_what_is_no_message_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidArgumentError):
        decode(raw)
