"""A process of ``tarry work``: a worker, until it is told to stop or its supervisor is gone."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import uvloop

from tarry.base.errors import TarryError
from tarry.base.logs import log_to_stderr
from tarry.base.stop_signals import StopSignals
from tarry.cli.exits import ExitCode, exit_code
from tarry.worker import Worker
from tarry.worker.supervisor import ProcessStart
from tarry.worker.target import load

log = logging.getLogger("tarry.work")

REPORT_S = 1.0
"""Seconds between reports."""


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """Of the processes of a worker; None: what the program says."""

    target: str
    endpoint: str | None
    drain_s: float | None
    verbose: bool
    start: ProcessStart | None = None
    """Of one of them."""

    def command(self, start: ProcessStart) -> Sequence[str]:
        """Return the command line of one process."""
        return [sys.executable, "-m", __name__, json.dumps(asdict(replace(self, start=start)))]

    def load(self) -> Worker:
        """Return the worker, as the command line changes it.

        Raises:
            InvalidArgumentError: there is none of that name. What its module raises.
        """
        worker = load(self.target)
        if self.endpoint is not None:
            worker.address = self.endpoint
        if self.drain_s is not None:
            worker.drain_s = self.drain_s
        worker.check()
        return worker


async def _serve(worker: Worker, start: ProcessStart, signals: StopSignals) -> None:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        loop.remove_reader(signals.fileno())
        log.info("%s stops", start.name)
        worker.stop()

    def on_alone() -> None:
        if signals.wait(0):
            os._exit(ExitCode.FAILED)  # it was told to stop, and whoever told it does not wait for that
        loop.remove_reader(start.alive)
        log.warning("%s stops: the process that started it is gone", start.name)
        worker.stop()

    loop.add_reader(signals.fileno(), on_signal)
    loop.add_reader(start.alive, on_alone)
    serving = asyncio.create_task(worker.serve())
    await asyncio.sleep(0)  # from here on it can be stopped
    if signals.wait(0) or _is_gone(start.alive):  # already before, when it could not
        worker.stop()
    while not serving.done():
        _report(start.report, worker)
        await asyncio.wait([serving], timeout=REPORT_S)
    loop.remove_reader(start.alive)
    await serving


def _is_gone(alive: int) -> bool:
    """Return whether the process that holds the other end of a pipe, and writes nothing, has ended."""
    poll = select.poll()
    poll.register(alive, select.POLLIN)
    return bool(poll.poll(0))


def _report(file: int, worker: Worker) -> None:
    line = {"drain_s": worker.drain_s, "handlers": [each.as_json() for each in worker.figures()]}
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    except OSError:
        pass  # nobody is there any more


def main() -> int:
    """Run the process that the command line describes; return its exit code."""
    given = json.loads(sys.argv[1])
    start = ProcessStart(**given["start"])
    settings = WorkSettings(**{**given, "start": start})
    log_to_stderr(verbose=settings.verbose, process=start.name)
    for file in (start.alive, start.report):
        os.set_inheritable(file, False)  # what a handler starts is not to keep them
    try:
        # Patient: a service manager may signal all processes, and the supervisor does once more. That one ends it.
        with StopSignals(patient=True) as signals:
            worker = settings.load()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(worker, start, signals))
    except TarryError as error:
        log.error("%s: %s", start.name, error)
        return exit_code(error)
    except Exception:
        log.exception("%s has failed", start.name)
        return ExitCode.FAILED
    return ExitCode.OK


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stdout.flush()
    # Not by way of the interpreter's end: threads of handlers that hang, or of libraries, would be waited for.
    os._exit(code)
