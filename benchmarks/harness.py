"""What every benchmark needs: a name in the table, a broker process, messages, and a bar to hold."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import psutil
import pyarrow as pa

BODY_BYTES = 256


@dataclass(frozen=True)
class Result:
    """One row of the table. ``bar`` is ``"≥ 500000"`` or ``"≤ 64"``; without one the row is for comparison."""

    name: str
    value: float
    unit: str
    bar: str = ""

    @property
    def holds(self) -> bool | None:
        if not self.bar:
            return None
        sign, number = self.bar.split()[:2]
        return bool(self.value >= float(number) if sign == "≥" else self.value <= float(number))


Benchmark = Callable[[], list[Result]]
BENCHMARKS: dict[str, Benchmark] = {}
OPT_IN: set[str] = set()
"""Those that run only where they are named, for they take long or need much disk."""


@overload
def benchmark(function: Benchmark) -> Benchmark: ...
@overload
def benchmark(*, opt_in: bool) -> Callable[[Benchmark], Benchmark]: ...
def benchmark(function: Benchmark | None = None, *, opt_in: bool = False) -> Any:
    """Make a function known under its name."""

    def known(function: Benchmark) -> Benchmark:
        BENCHMARKS[function.__name__] = function
        if opt_in:
            OPT_IN.add(function.__name__)
        return function

    return known if function is None else known(function)


def rss_bytes_of(pid: int) -> int:
    """Memory of a process."""
    return int(psutil.Process(pid).memory_info().rss)


def cpu_s_of(pid: int) -> float:
    """Processor time that a process has had."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@dataclass
class Server:
    """A broker in a process of its own."""

    process: subprocess.Popen[str]
    address: str
    data: Path
    http: str = ""
    """The address of its HTTP front, where it has one."""

    @property
    def rss_mb(self) -> float:
        return rss_bytes_of(self.process.pid) / (1 << 20)

    def cpu_s(self) -> float:
        return cpu_s_of(self.process.pid)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def start_server(
    data: Path, *, pipeline: str = "off", address: str = "127.0.0.1:0", module: str = "tarry", **settings: Any
) -> Server:
    """Start ``tarry serve`` and wait for its line. ``module``: another way to the same command."""
    command = [sys.executable, "-m", module, "serve", "--data", str(data), "--flight", address, "--pipeline", pipeline]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    log = (data.parent / f"{data.name}.log").open("a")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    ready = re.search(r"flight on (\S+?),", line)
    if ready is None:
        raise RuntimeError(f"the broker did not start: {line!r}; its log: {log.name}")
    http = re.search(r"http on ([^\s,]+)", line)
    return Server(process, ready[1], data, http[1] if http else "")


@contextmanager
def server(**settings: Any) -> Iterator[Server]:
    """A broker on a fresh directory on a real disk, stopped and removed at the end."""
    with workspace() as directory:
        started = start_server(directory / "data", **settings)
        try:
            yield started
        finally:
            started.process.terminate()
            try:
                started.process.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()


@contextmanager
def workspace() -> Iterator[Path]:
    """A directory of its own; TARRY_BENCH_DIR chooses the disk."""
    directory = Path(tempfile.mkdtemp(prefix="tarry-bench-", dir=os.environ.get("TARRY_BENCH_DIR")))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def messages(rows: int, due_ms: np.ndarray | int, topic: str = "bench", seed: int = 1) -> pa.RecordBatch:
    """A batch of messages with random bodies."""
    rng = np.random.default_rng(seed)
    offsets = np.arange(rows + 1, dtype=np.int32) * BODY_BYTES
    body = pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(rng.bytes(rows * BODY_BYTES))]
    )
    due = np.full(rows, due_ms, np.int64) if isinstance(due_ms, int) else due_ms.astype(np.int64)
    topics = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [topic]).cast(pa.string())
    return pa.RecordBatch.from_arrays([topics, pa.array(due), body], names=["topic", "due_ms", "body"])


def free_endpoint() -> str:
    """An address of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def disk_bytes_per_s(total: int, chunk: int = 1 << 20) -> float:
    """Sequential writing with one fdatasync at the end, as ``dd conv=fdatasync`` does."""
    with workspace() as directory:
        data = os.urandom(chunk)
        fd = os.open(directory / "dd", os.O_CREAT | os.O_WRONLY)
        start = time.perf_counter()
        for _ in range(total // chunk):
            os.write(fd, data)
        os.fdatasync(fd)
        elapsed = time.perf_counter() - start
        os.close(fd)
    return total / elapsed


def percentiles(values: np.ndarray, *which: float) -> list[float]:
    return [float(v) for v in np.percentile(values, which)]


def child(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python process that runs ``benchmarks.<code>``."""
    return subprocess.Popen([sys.executable, "-m", f"benchmarks.{code}", *arguments], stdout=subprocess.PIPE, text=True)
