"""``python -m benchmarks.named_threads …``: the command ``tarry``, with the names of its threads told to the system.

Python keeps them to itself before 3.14; with them ``/proc/PID/task/*/stat`` says which part of a broker takes the time.
What has no name of its own (Arrow's, gRPC's, RocksDB's) shows what its library calls it, or the name of who began it.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from tarry.cli.main import run as run_command

NAME_BYTES_MAX = 15
"""The system cuts longer names; those of Tarry's threads differ in the first that many after ``tarry-``."""


def name_threads() -> None:
    """Have each thread that is begun from now on tell its name."""
    run = threading.Thread.run

    def named(thread: threading.Thread, *arguments: Any) -> None:
        name = thread.name.removeprefix("tarry-")[:NAME_BYTES_MAX]
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
        run(thread, *arguments)

    threading.Thread.run = named  # type: ignore[method-assign]


if __name__ == "__main__":
    name_threads()
    sys.exit(run_command())
