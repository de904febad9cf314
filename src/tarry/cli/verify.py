"""``tarry verify``: whether the files of a data directory are as they were written."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
    directory: Annotated[
        str,
        typer.Argument(metavar="DIR", help="A data directory that no broker has open; or a backup, by path or URI."),
    ],
    store: Store = None,
    json: Json = False,
) -> None:
    """Check every file of a data directory; nothing is changed.

    Exit code 4 when something is damaged: each file with the offset, what it means, and how to go on. Exit code 3 while
    a broker has the directory open; it checks its files by itself. Of a cache (tarry serve --log) its files are
    checked, and the store if it is named, but not the logs in the bucket: a start reads and checks those. Of a backup
    each file is compared with backup.json, too; of one in object storage, that alone.

    \b
    tarry verify data
    tarry verify --store s3://bucket/store data
    tarry verify s3://bucket/backups/monday
    tarry verify --json data | jq -c 'select(.what == "damage")'
    """
    from tarry.backup.checking import manifest_checks, manifest_of
    from tarry.backup.sources import DirectoryBackup
    from tarry.broker.verification import held, plan_checks
    from tarry.log.file_engine import cache_of
    from tarry.store.place import local_path

    if (path := local_path(directory)) is None:
        _verify_objects(directory, store, json=json)
        return
    data = path if directory.startswith("file:") else Path(directory)  # as it was named, in what is printed
    backup = manifest_of(data)
    with held(data):
        logs = cache_of(data)
        cache = None if logs is None else _Cache(data, logs)
        is_beside = cache is None and (backup is None or backup.store is None)
        checks = list(plan_checks(data, store or (str(data / "store") if is_beside else None)))
        if cache is not None:
            _print_note("cache", str(data), cache.said(store), json=json)
        if backup is not None and not is_beside and store is None:
            said = f"it is without the store {backup.store}, of which version {backup.store_version} is needed"
            _print_note("backup", str(data), f"{said}: that is not checked; name it by --store URI", json=json)
        kinds: Counter[str] = Counter(check.kind for check in checks if check.bytes)
        compared = [] if backup is None else list(manifest_checks(DirectoryBackup(data), backup))
        damaged: Counter[str] = Counter()
        for check, result in _results([*checks, *compared]):
            damaged[check.kind] += _report(check, result if cache is None else cache.meant(result), json=json)
    summary = {"files": kinds.total(), "bytes": sum(check.bytes for check in checks), "damaged": damaged.total()}
    kinds.update(check.kind for check in compared)  # of files that have been counted, most of them
    _print_summary(summary, kinds, damaged, json=json)
    if damaged.total():
        raise typer.Exit(ExitCode.CORRUPT)


def _verify_objects(uri: str, store: str | None, *, json: bool) -> None:
    """Compare a backup in object storage with its manifest."""
    from tarry.backup.checking import manifest_checks
    from tarry.backup.sources import source_of
    from tarry.base.errors import InvalidArgumentError

    if store is not None:
        raise InvalidArgumentError(f"--store is {store!r:.300}, beside a backup in object storage; allowed: without it")
    source = source_of(uri)
    manifest = source.manifest()
    if manifest.store is not None:
        said = f"it is without the store {manifest.store}, of which version {manifest.store_version} is needed"
        _print_note("backup", uri, f"{said}: that is not checked", json=json)
    checks = list(manifest_checks(source, manifest))
    damaged: Counter[str] = Counter()
    for check, result in _results(checks):
        damaged[check.kind] += _report(check, result, json=json)
    summary = {"files": len(checks), "bytes": manifest.bytes, "damaged": damaged.total()}
    _print_summary(summary, Counter(check.kind for check in checks), damaged, json=json)
    if damaged.total():
        raise typer.Exit(ExitCode.CORRUPT)


def _print_summary(summary: dict[str, int], kinds: Counter[str], damaged: Counter[str], *, json: bool) -> None:
    if json:
        output.json_line({"what": "summary", **summary, "kinds": dict(kinds)})
        return
    for kind, files in sorted(kinds.items()):
        output.line(f"{kind}: {files} files, {f'{damaged[kind]} damaged' if damaged[kind] else 'sound'}")
    output.line(f"{summary['files']} files, {summary['bytes']} bytes, {summary['damaged'] or 'nothing'} damaged")


@dataclass(frozen=True, slots=True)
class _Cache:
    """A directory that is a cache of logs elsewhere, and their URI."""

    data: Path
    logs: str

    def said(self, store: str | None) -> str:
        """Return what it is, and what is checked."""
        unchecked = "; not its store, either: name that by --store URI" if store is None else f", and the store {store}"
        return (
            f"it is a cache of the logs in {self.logs}: a start empties it, and makes it again of them. Its files are "
            f"checked, not those logs{unchecked}"
        )

    def meant(self, result: Finding | Note) -> Finding | Note:
        """Return a result with what it means for a cache."""
        from tarry.verify import Finding

        if not isinstance(result, Finding) or not Path(result.path).is_relative_to(self.data):
            return result
        advice = "start the broker again; if it is damaged again, look at this machine's disk"
        return replace(result, meaning="It is a file of a cache, so nothing is lost.", advice=advice)


def _results(checks: list[Check]) -> Iterator[tuple[Check, Finding | Note]]:
    with _progress(sum(check.bytes for check in checks)) as pace:
        for check in checks:
            for result in check.results(pace):
                yield check, result


def _report(check: Check, result: Finding | Note, *, json: bool) -> bool:
    """Print what was found; whether it is damage."""
    from tarry.verify import Finding

    is_damage = isinstance(result, Finding)
    if not isinstance(result, Finding):
        _print_note(check.kind, result.path, result.what, json=json)
    elif json:
        fields = {"offset": result.offset, "reason": result.what, "meaning": result.meaning, "advice": result.advice}
        output.json_line({"what": "damage", "kind": check.kind, "path": result.path, **fields})
    else:
        output.line(f"damage: {result}")
    return is_damage


def _print_note(kind: str, path: str, text: str, *, json: bool) -> None:
    if json:
        output.json_line({"what": "note", "kind": kind, "path": path, "reason": text})
    else:
        output.line(f"note: {path}: {text}")


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
