"""``tarry`` as a process of its own that fails where a test wants it to: killed, out of disk, or held for a moment.

What is to happen is a file in the directory ``faults`` beside the data, so that it can be changed while the broker
runs. ``die-POINT`` with a number: SIGKILL when that point is passed for the so-manieth time. ``full``: no file of a job
can be written. ``meet`` with a number: a commit waits until so many jobs have come that far.
"""

from __future__ import annotations

import errno
import functools
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tarry_demo.broker_process import BrokerProcess

MEET_S = 180.0
POINTS = ("reserved", "staged", "asked", "committing", "published", "announced", "committed")
"""In the order in which a job passes them; "staged" only where the broker writes the files."""


# -- what a test has of it ---------------------------------------------------------------------------------------------


class FailingBroker(BrokerProcess):
    """A broker with faults; use it as a BrokerProcess."""

    MODULE = "tests.spark.failing_broker"

    def __init__(self, directory: Path, settings: dict[str, str | int]) -> None:
        super().__init__(directory / "data", directory / "broker.log", settings)
        self.faults = directory / "faults"
        self.faults.mkdir(exist_ok=True)

    def set(self, fault: str, number: int = 1) -> None:
        """From now on."""
        aside = self.faults / f".{fault}"
        aside.write_text(str(number))
        aside.replace(self.faults / fault)

    def unset(self, fault: str) -> None:
        """No more."""
        (self.faults / fault).unlink(missing_ok=True)

    @contextmanager
    def restarted(self, patience_s: float = 180.0) -> Iterator[None]:
        """Started again as soon as it has died, which it does in the block."""
        process = self._process
        assert process is not None
        errors: list[BaseException] = []

        def keep() -> None:
            try:
                assert process.wait(patience_s) == -signal.SIGKILL
                self.start()
            except BaseException as error:  # noqa: BLE001  raised where the test sees it
                errors.append(error)

        keeper = threading.Thread(target=keep)
        keeper.start()
        try:
            yield
        finally:
            keeper.join()
        assert not errors, errors


# -- in the process ----------------------------------------------------------------------------------------------------

_lock = threading.Lock()


def passed(directory: Path, point: str) -> None:
    """A point is passed, which may be the end."""
    path = directory / f"die-{point}"
    with _lock:
        if path.exists():
            left = int(path.read_text()) - 1
            path.write_text(str(left))
            if left == 0:
                path.unlink()
                os.kill(os.getpid(), signal.SIGKILL)


def meet(directory: Path, number: int) -> None:
    """Wait for the others."""
    path = directory / "meet"
    if path.exists():
        wanted, end = int(path.read_text()), time.monotonic() + MEET_S
        (directory / f"here-{number}").touch()
        while len(list(directory.glob("here-*"))) < wanted:
            assert time.monotonic() < end, "the others never came"
            time.sleep(0.01)


def instrument(directory: Path) -> None:
    """Put the faults in."""
    from tarry.broker import bulk
    from tarry.store.table import Store

    staging: Any = importlib.import_module("tarry.store.stage")  # the package has a function of that name

    def around(owner: Any, name: str, before: str | None, after: str | None) -> None:
        whole: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(whole)
        def instrumented(*arguments: Any, **named: Any) -> Any:
            if before is not None:
                passed(directory, before)
            result = whole(*arguments, **named)
            if after is not None:
                passed(directory, after)
            return result

        setattr(owner, name, instrumented)

    put, commit = staging.put, bulk.Bulk.commit

    def put_if_there_is_room(*arguments: Any, **named: Any) -> Any:
        if (directory / "full").exists():
            raise OSError(errno.ENOSPC, "No space left on device (injected)")
        return put(*arguments, **named)

    def commit_together(self: bulk.Bulk, number: int, *arguments: Any) -> Any:
        meet(directory, number)
        return commit(self, number, *arguments)

    staging.put = put_if_there_is_room
    bulk.Bulk.commit = commit_together  # type: ignore[method-assign]
    around(bulk.Bulk, "reserve", None, "reserved")
    around(bulk.Bulk, "_staged", None, "staged")
    around(bulk.Bulk, "commit", "asked", "committed")
    around(Store, "commit_bulk", "committing", "published")
    around(bulk.Bulk, "_announce", None, "announced")


if __name__ == "__main__":
    from tarry.cli.main import run

    instrument(Path(sys.argv[sys.argv.index("--data") + 1]).parent / "faults")
    sys.exit(run(sys.argv[1:]))
