"""``tarry gateway`` and ``tarry serve --workers``: what they refuse."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tarry.cli.exits import ExitCode
from tarry.cli.gateway import own_settings
from tarry.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["serve", "--data", "{tmp}", "--workers", "2"], "none of rocketmq, remoting, http has an address"),
        (["serve", "--data", "{tmp}", "--workers", "-1"], "workers is"),
        (["serve", "--data", "{tmp}", "--http-admin", "127.0.0.1:0"], "http has no address"),
        (["serve", "--data", "{tmp}", "--set", "gateway=unix:"], "gateway is 'unix:'"),
        (["serve", "--data", "{tmp}", "--set", "gateway=nowhere"], "unix:PATH"),
        (["serve", "--data", "{tmp}", "--set", "gateway=127.0.0.1:0"], "gateway_secret is not given"),
        (["gateway", "--broker", "nowhere", "--rocketmq", "127.0.0.1:0"], "nowhere"),
        (
            ["gateway", "--broker", "unix:/x", "--rocketmq", "127.0.0.1:0", "--set", "lease_ms=1"],
            "that is the broker's",
        ),
        (["gateway", "--broker", "unix:/x", "--rocketmq", "127.0.0.1:0", "--workers", "0"], "workers"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([argument.format(tmp=tmp_path) for argument in arguments]) == ExitCode.USAGE
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "far", "near"),
    [
        ({}, (None, None), (None, None)),
        ({"tls_version_min": "1.3"}, ("1.3", None), ("1.3", None)),
        ({"tls_clients": "optional", "tls_version_min": "1.2"}, ("1.2", "optional"), ("1.2", "optional")),
    ],
)
def test_what_a_gateway_asks_of_clients_is_the_brokers_where_it_is_not_given(
    given: dict[str, str], far: tuple[str | None, ...], near: tuple[str | None, ...]
) -> None:
    """A default must not take back what the broker asks for."""
    for is_near, expected in ((False, far), (True, near)):
        own = own_settings(given, is_near=is_near)
        assert (own.get("tls_version_min"), own.get("tls_clients")) == expected
        assert ("data" in own) is not is_near


_WORKER = """
import sys
from tarry.cli import gateway_worker

def serve(settings, connections, stop):
    import pyarrow as pa
    from tarry.link.frames import decode_batch
    try:
        decode_batch(memoryview(sys.stdin.buffer.read()), pa.schema([("body", pa.large_binary())]))
    except Exception as error:
        print(type(error).__name__, error)

gateway_worker._serve = serve
gateway_worker.run(gateway_worker.Settings("127.0.0.1:1", "rocketmq", "127.0.0.1:0"))
"""


def test_what_a_broker_compresses_is_unpacked_within_a_bound() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    ended = subprocess.run(
        [sys.executable, "-c", _WORKER], env=environment, input=compressed(192 << 20), capture_output=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert re.match(rb"InvalidArgumentError \d+ bytes are no record batch: malloc of size \d+ failed", ended.stdout)


def compressed(size: int) -> bytes:
    """A record batch of one column with one value, of so many zeros."""
    ends = pa.array([0, size], pa.int64()).buffers()[1]
    values = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(bytes(size))])
    batch, sink = pa.record_batch([values], names=["body"]), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()
    content = bytes(messages.read_next_message().serialize())
    assert len(content) < 1 << 20
    return content
