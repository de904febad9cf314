"""A few kilobytes that unpack to gigabytes are refused with nothing allocated, by a process as ``tarry serve`` is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from tarry.api.wire import decode_answer, decode_error
from tarry.base.errors import MessageTooLargeError
from tarry.client import Client

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")

GROWTH_KIB_MAX = 64 << 10
DESCRIPTOR = fl.FlightDescriptor.for_path("schedule")


class Served:
    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.address = address

    def peak_kib(self) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", text)[0])

    def forget_peak(self) -> int:
        """What the peak is from now on."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return self.peak_kib()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    command = [sys.executable, "-m", "tarry", "serve", "--data", str(tmp_path / "data"), "--pipeline", "off"]
    process = subprocess.Popen([*command, "--flight", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"flight on (\S+),", process.stdout.readline())
    assert found
    yield Served(process, found[1])
    process.terminate()
    assert process.wait(30) == 0


def batch(sizes: list[int]) -> pa.RecordBatch:
    ends = [sum(sizes[:place]) for place in range(len(sizes) + 1)]
    data = pa.py_buffer(bytes(ends[-1]))
    bodies = pa.Array.from_buffers(pa.large_binary(), len(sizes), [None, pa.array(ends, pa.int64()).buffers()[1], data])
    rows = len(sizes)
    return pa.RecordBatch.from_arrays(
        [pa.array(["a"] * rows), pa.array([3_600_000] * rows), bodies], names=["topic", "delay_ms", "body"]
    )


def send(flight: fl.FlightClient, rows: pa.RecordBatch, codec: str | None) -> bytes:
    options = fl.FlightCallOptions(timeout=60, write_options=pa.ipc.IpcWriteOptions(compression=codec))
    writer, reader = flight.do_put(DESCRIPTOR, rows.schema, options)
    try:
        writer.write_batch(rows)
        writer.done_writing()
        answer: bytes = reader.read().to_pybytes()
        return answer
    finally:
        writer.close()


@pytest.mark.parametrize("codec", ["zstd", pytest.param("lz4", marks=pytest.mark.rest)])
def test_a_small_batch_that_unpacks_to_a_large_one(served: Served, codec: str) -> None:
    bomb = batch([800 << 20])
    with Client(served.address) as other:
        flight = fl.connect(f"grpc://{served.address}")
        flight.wait_for_available()
        other.schedule("a", b"x", delay="1h")
        before = served.forget_peak()
        for _ in range(3):
            with pytest.raises(fl.FlightServerError) as caught:
                send(flight, bomb, codec)
            assert type(decode_error(caught.value.extra_info)) is MessageTooLargeError
            other.schedule("a", b"x", delay="1h")
            assert decode_answer(send(flight, batch([10]), None)).rows == 1  # type: ignore[union-attr]
        assert served.peak_kib() - before < GROWTH_KIB_MAX
        small = decode_answer(send(flight, batch([1000] * 1000), codec))
        assert small.rows == 1000  # type: ignore[union-attr]
        assert other.status()["state"] == "serving"
