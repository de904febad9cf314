"""``tarry demo`` from its options to its directory of results: data, run, report."""

from __future__ import annotations

import json as jsonlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from tarry.base.errors import InvalidArgumentError
from tarry_demo import audit as auditing
from tarry_demo import picture, report
from tarry_demo.account import account_of, first_hand_outs
from tarry_demo.facts import wrong_with
from tarry_demo.flights import Flights, load
from tarry_demo.scenario import Scenario, ScenarioResult
from tarry_demo.screen import Screen

ROWS_MIN = 100
SECONDS_MIN, SECONDS_MAX = 5.0, 86_400.0
SECONDS = 120.0
SMALL_ROWS, SMALL_SECONDS = 20_000, 30.0


def run(
    out: Path = Path("demo-out"),
    *,
    small: bool = False,
    json: bool = False,
    rows: int | None = None,
    seconds: float | None = None,
    kill: bool = True,
    keep: Path | None = None,
    audit: bool = True,
) -> int:
    """Run the demo, and print its report on stdout; progress goes to stderr.

    Args:
        out: gets ``report.json``, ``lateness.png``, ``audit.html``, both ledgers and the logs.
        small: 20,000 departures in 30 s, unless ``rows`` and ``seconds`` are given.
        json: print ``report.json`` instead of tables.
        rows: how many of the departures, evenly out of the year; all without it.
        seconds: how long the year takes.
        kill: whether the broker is killed in the middle.
        keep: the broker's data directory, new or empty, which stays; else it is in ``out`` and is deleted at the end.
        audit: whether ``tarry audit`` compares the ledgers once more, by Spark.

    Returns:
        0 when nothing was lost or early and most was delivered from the Spark store, else 1.

    Raises:
        InvalidArgumentError: an option is not allowed. TarryError: something failed, so that there is no report.
    """
    rows = SMALL_ROWS if rows is None and small else rows
    seconds = (SMALL_SECONDS if small else SECONDS) if seconds is None else seconds
    _check(rows, seconds, keep)
    out.mkdir(parents=True, exist_ok=True)
    screen = Screen()
    with _signals(), _data_directory(out, keep) as data:
        with screen.step("reading the departures of 2013") as step:
            flights = load(rows)
            step.done = f"{len(flights):,} scheduled departures of 2013, from {flights.airports}"
        scenario = Scenario(flights, seconds=seconds, kill=kill, data=data, out=out, screen=screen)
        try:
            result = scenario.run()
        finally:
            _save_log(scenario.pipeline_log, out)
            scenario.delivered_file.unlink(missing_ok=True)
        return _report(out, result, flights, json=json, audit=audit, screen=screen)


def _report(out: Path, result: ScenarioResult, flights: Flights, *, json: bool, audit: bool, screen: Screen) -> int:
    facts = result.facts
    outage = facts.kill.outage if facts.kill is not None else None
    with screen.step("comparing what was accepted with what was delivered") as step:
        account = account_of(result.accepted, result.delivered, rows=len(flights), outage=outage)
        auditing.write_ledgers(out, result.accepted, result.delivered, flights)
        _draw(out / "lateness.png", result, flights)
        step.done = "compared what was accepted with what was delivered"
    audited = _audit(out, screen) if audit else None
    wrong = [*wrong_with(account, facts), *(audited.wrong(account) if audited else [])]
    data = report.as_json(account, facts, wrong, audited)
    report.write_json(out / "report.json", data)
    if json:
        sys.stdout.write(jsonlib.dumps(data) + "\n")
    else:
        names = ("lateness.png", *([auditing.REPORT] if audited else []), "report.json", "broker.log", "pipeline.log")
        files = [out / name for name in names]
        report.print_report(Console(highlight=False), report.show(account, facts, wrong, files, audited))
    return 1 if wrong else 0


def _audit(out: Path, screen: Screen) -> auditing.Audited:
    with screen.step("Spark compares both ledgers once more (tarry audit)") as step:
        audited = auditing.audit(out)
        step.done = f"tarry audit: {audited.error or ' '.join(audited.verdict)}"
    return audited


def _draw(path: Path, result: ScenarioResult, flights: Flights) -> None:
    facts = result.facts
    picture.draw(
        path,
        firsts=first_hand_outs(result.accepted, result.delivered),
        delivered=result.delivered,
        looks=result.looks,
        start_ms=facts.start_ms,
        seconds=facts.seconds,
        instant_ms=flights.instant_ms,
        outage=facts.kill.outage if facts.kill is not None else None,
    )


def _check(rows: int | None, seconds: float, keep: Path | None) -> None:
    if rows is not None and rows < ROWS_MIN:
        raise InvalidArgumentError(f"rows is {rows}; allowed: {ROWS_MIN} or more")
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise InvalidArgumentError(f"seconds is {seconds}; allowed: {SECONDS_MIN:g} to {SECONDS_MAX:g}")
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InvalidArgumentError(f"{keep} is not empty; allowed: a new or empty directory for the broker's data")


@contextmanager
def _data_directory(out: Path, keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    # Beside the results rather than in /tmp, which is memory on some machines: the broker's disk should be one.
    data = Path(tempfile.mkdtemp(prefix=".data-", dir=out))
    try:
        yield data
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _save_log(log: Path, out: Path) -> None:
    if log.exists():
        shutil.copyfile(log, out / "pipeline.log")


@contextmanager
def _signals() -> Iterator[None]:
    """End the demo on SIGTERM and on a closed terminal as on Ctrl-C.

    Everything that it started is ended first.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before: dict[int, Any] = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        try:
            before[number] = signal.signal(number, interrupt)
        except ValueError:
            break  # not the main thread: the caller handles signals
    try:
        yield
    finally:
        for changed, handler in before.items():
            signal.signal(changed, handler)
