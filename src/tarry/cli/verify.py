"""``tarry verify``: whether the files of a data directory are as they were written."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.cli import output
from tarry.cli.exits import ExitCode
from tarry.cli.options import Json

if TYPE_CHECKING:
    from tarry.verify import Check, Finding, Note, Pace

Store = Annotated[
    str | None, typer.Option("--store", metavar="URI", help="The store, where it is not in the directory.")
]

LINES_BYTES_MIN = 256 << 20
"""Of so much, progress is told where there is no terminal."""


def verify(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="A data directory that no broker has open.")],
    store: Store = None,
    json: Json = False,
) -> None:
    """Check every file of a data directory; nothing is changed.

    Exit code 4 when something is damaged: each file with the offset, what it means, and how to go on. Exit code 3 while
    a broker has the directory open; it checks its files by itself.

    \b
    tarry verify data
    tarry verify --store s3://bucket/store data
    tarry verify --json data | jq -c 'select(.what == "damage")'
    """
    from tarry.broker.verification import held, plan_checks

    with held(data):
        checks = list(plan_checks(data, store or str(data / "store")))
        kinds: Counter[str] = Counter(check.kind for check in checks if check.bytes)
        damaged: Counter[str] = Counter()
        for check, result in _results(checks):
            damaged[check.kind] += _report(check, result, json=json)
    total = sum(check.bytes for check in checks)
    if json:
        summary = {"files": kinds.total(), "bytes": total, "damaged": damaged.total()}
        output.json_line({"what": "summary", **summary, "kinds": dict(kinds)})
    else:
        for kind, files in sorted(kinds.items()):
            output.line(f"{kind}: {files} files, {f'{damaged[kind]} damaged' if damaged[kind] else 'sound'}")
        output.line(f"{kinds.total()} files, {total} bytes, {damaged.total() or 'nothing'} damaged")
    if damaged.total():
        raise typer.Exit(ExitCode.CORRUPT)


def _results(checks: list[Check]) -> Iterator[tuple[Check, Finding | Note]]:
    with _progress(sum(check.bytes for check in checks)) as pace:
        for check in checks:
            for result in check.results(pace):
                yield check, result


def _report(check: Check, result: Finding | Note, *, json: bool) -> bool:
    """Print what was found; whether it is damage."""
    from tarry.verify import Finding

    is_damage = isinstance(result, Finding)
    what = "damage" if is_damage else "note"
    if not json:
        output.line(f"{what}: {result}" if is_damage else f"{what}: {result.path}: {result.what}")
    elif isinstance(result, Finding):
        fields = {"offset": result.offset, "reason": result.what, "meaning": result.meaning, "advice": result.advice}
        output.json_line({"what": what, "kind": check.kind, "path": result.path, **fields})
    else:
        output.json_line({"what": what, "kind": check.kind, "path": result.path, "reason": result.what})
    return is_damage


@contextmanager
def _progress(size: int) -> Iterator[Pace]:
    """Show a bar on a terminal; elsewhere, if it takes its time, a line on stderr for each tenth."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

        columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=size)
            yield lambda more: bar.advance(task, more)
        return
    done = 0

    def pace(more: int) -> None:
        nonlocal done
        before, done = done, done + more
        if size >= LINES_BYTES_MIN and 10 * before // size < 10 * done // size < 10:
            output.note(f"{100 * done // size} % of {size} bytes")

    yield pace
