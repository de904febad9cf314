"""``tarry work``: the processes of a worker, for as long as they are wanted."""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.cli.exits import ExitCode

if TYPE_CHECKING:
    from tarry.cli.work_process import WorkSettings
    from tarry.worker.supervisor import ProcessSupervisor

MARGIN_S = 15.0
"""Seconds in which a process ends beyond its time to drain.

Handlers are cancelled then, and acknowledgements become durable.
"""
LOOK_S = 0.25
RELOAD_DRAIN_S = 1.0
"""While somebody is at the code, handlers are not waited for."""


def work(
    target: Annotated[str, typer.Argument(metavar="MODULE:WORKER", help="Where your program has its tarry.Worker.")],
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, help="Processes, each with all handlers.")] = 1,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", "-e", metavar="HOST:PORT", help="The broker, in place of the program's."),
    ] = None,
    drain_s: Annotated[
        float | None,
        typer.Option("--drain-s", min=0, help="Seconds for what is handled at a stop; 25, or the program's."),
    ] = None,
    health_port: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT", help="Serve /healthz, /readyz and /metrics; without HOST, for this machine."
        ),
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Begin again when a Python file here changes.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run a worker's handlers, until SIGTERM or SIGINT.

    Then no more messages are taken, what is handled has --drain-s seconds, and what is not done by then goes to others
    at once. A second signal ends it on the spot: then messages come again as their next try. A process that ends is
    started again, after a pause that grows up to 30 s.

    \b
    tarry work shop.work:worker
    tarry work shop.work:worker --processes 4 --health-port 0.0.0.0:8080
    tarry work shop.work:worker --reload
    """
    from tarry.base.logs import log_to_stderr
    from tarry.cli.work_process import WorkSettings

    log_to_stderr(verbose=verbose)
    if reload and drain_s is None:
        drain_s = RELOAD_DRAIN_S
    code = watch(WorkSettings(target, endpoint, drain_s, verbose), processes, health_port, reload=reload)
    if code:
        raise typer.Exit(code)


def watch(settings: WorkSettings, processes: int, health: str | None, *, reload: bool) -> int:
    """Keep the processes running until a signal comes, or they cannot begin; return the exit code."""
    from tarry.base.stop_signals import StopSignals
    from tarry.cli.work_health import WorkFigures, health_port
    from tarry.cli.work_reload import SourceChanges
    from tarry.worker.supervisor import ProcessSupervisor

    log = logging.getLogger("tarry.work")
    figures = WorkFigures()
    supervisor = ProcessSupervisor(settings.command, processes, figures.on_ended)
    supervisor.waits_for_change = reload
    figures.states = supervisor.states
    with ExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        where = ""
        if health is not None:
            port = health_port(health, figures)
            stack.callback(port.stop)
            where = f", health at {port.address}"
        changes = stack.enter_context(closing(SourceChanges(Path.cwd()))) if reload else None
        supervisor.start()
        try:
            log.info("%s, processes: %d%s", settings.target, processes, where)
            while not stop.wait(LOOK_S) and supervisor.failed is None:
                if changes is not None and changes.found():
                    log.info("files have changed: the processes begin again")
                    supervisor.replace()
        finally:
            has_ended_well = supervisor.stop(_drain_s(settings, supervisor) + MARGIN_S)
    if supervisor.failed is not None:
        return supervisor.failed if supervisor.failed > 0 else ExitCode.FAILED
    log.info("stopped")
    return ExitCode.OK if has_ended_well else ExitCode.FAILED


def _drain_s(settings: WorkSettings, supervisor: ProcessSupervisor) -> float:
    """Return the seconds that processes take to drain; the program's own they have said."""
    from tarry.worker.worker import DRAIN_S

    reports = [report for state in supervisor.states() if (report := state.report) is not None]
    return settings.drain_s or max([DRAIN_S, *(report["drain_s"] for report in reports)])
