"""What a broker takes while it runs: memory, descriptors, threads and files, sampled over time; and whether they
grow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles

import psutil

from benchmarks.harness import Server

SAMPLE_S = 15.0
AGE_S_MIN = 60.0
"""A broker that has just started has not its full memory yet."""
GROWTH = {
    "rss_mb": (1.15, 24.0),
    "descriptors": (1.1, 12),
    "threads": (1.1, 6),
    "files": (1.15, 20),
    "pipeline_mb": (1.2, 96),
}
"""By how much a figure may be larger in the last third of a run than in the second: a factor, and so much more."""


@dataclass(frozen=True)
class Sample:
    """At one moment. ``files``: of the data directory, without the entries of the store's log, which stay for a day."""

    at_s: float
    age_s: float
    rss_mb: float
    descriptors: int
    threads: int
    files: int
    log_entries: int
    disk_mb: float
    pipeline_mb: float


class Resources(threading.Thread):
    """Samples the broker that ``server`` gives: it is killed and started again. End it with :meth:`stop`. ``former``
    are the samples of earlier runs, which these follow.
    """

    def __init__(self, server: Callable[[], Server], former: Sequence[Sample] = ()) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._stopping = threading.Event()
        self.samples = list(former)

    def run(self) -> None:
        started = time.monotonic() - (self.samples[-1].at_s if self.samples else 0)
        while not self._stopping.wait(SAMPLE_S):
            try:
                self.samples.append(sample(self._server(), time.monotonic() - started))
            except (psutil.Error, OSError):
                continue  # it was killed meanwhile

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def plain(self) -> list[dict[str, float]]:
        """For a JSON file."""
        return [{name: round(value, 1) for name, value in asdict(each).items()} for each in self.samples]


def sample(server: Server, at_s: float) -> Sample:
    """Look now."""
    process = psutil.Process(server.process.pid)
    with process.oneshot():
        age_s = time.time() - process.create_time()
        rss_mb, descriptors, threads = process.memory_info().rss / (1 << 20), process.num_fds(), process.num_threads()
    children = [child.memory_info().rss for child in process.children(recursive=True) if child.is_running()]
    paths = [path for path in server.data.rglob("*") if path.is_file()]
    entries = sum(_is_log_entry(path) for path in paths)
    disk = sum(_size(path) for path in paths) / (1 << 20)
    return Sample(
        at_s, age_s, rss_mb, descriptors, threads, len(paths) - entries, entries, disk, sum(children) / (1 << 20)
    )


def _middle(name: str, values: Sequence[float]) -> float:
    """A figure of a part of the run: the median; of threads the lower quartile.

    The store's reader runs some 30 threads while it reads, and ends them: a sample meets them or does not. A thread
    that is left behind stays, in the lower quartile too.
    """
    if name == "threads" and len(values) > 1:
        return quantiles(values, n=4)[0]
    return median(values)


def growing(samples: Sequence[Sample]) -> dict[str, tuple[float, float]]:
    """The figures that grow: by name, that of the second third of the run, and that of the last (:func:`_middle`)."""
    old = [each for each in samples if each.age_s >= AGE_S_MIN]
    third = len(old) // 3
    if third == 0:
        return {}
    grown = {}
    for name, (factor, more) in GROWTH.items():
        before, after = (
            _middle(name, [getattr(each, name) for each in part]) for part in (old[third:-third], old[-third:])
        )
        if after > before * factor + more:
            grown[name] = (before, after)
    return grown


def _is_log_entry(path: Path) -> bool:
    return path.parent.name == "_delta_log"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
