"""``tarry migrate``: which formats a data directory has, and whether this program needs it rewritten."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.base.errors import CorruptError, LockedError
from tarry.cli import output
from tarry.cli.options import Json

if TYPE_CHECKING:
    from tarry.broker.formats import PartFormat


def migrate(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="A data directory that no broker has open.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: only say what is to be done. In this release, the same.")
    ] = False,
    json: Json = False,
) -> None:
    """Say which formats a data directory has, and do what this release needs before it can open it.

    Today that is nothing: this release reads each format that there was, and a broker writes a part anew with its first
    change. So nothing is changed here, with --dry-run or without it. Exit code 4 when a newer release wrote the
    directory, or a part is damaged; exit code 3 while a broker has it open.

    \b
    tarry migrate data
    tarry migrate --dry-run --json data | jq -c 'select(.found < .writes)'
    """
    from tarry.broker.formats import formats_of
    from tarry.broker.verification import held
    from tarry.log.file_engine import cache_of, check_no_backup
    from tarry.log.format_version import newer_format

    with held(data, "which reads each of its formats, or it would not have started"):
        check_no_backup(data)
        if (logs := cache_of(data)) is not None:
            raise LockedError(f"{data} is a cache of the logs in {logs}: a start makes it again, and nothing is to do")
        parts = list(formats_of(data))
    for part in parts:
        if json:
            output.json_line({"what": "format", **_fields(part)})
        else:
            output.line(f"{part.part}: {_told(part)}")
    newer = [each for each in parts if each.is_newer]
    damaged = [each.part for each in parts if each.is_damaged]
    older = [each.part for each in parts if each.found is not None and each.found < each.writes]
    if json:
        names = {"newer": [each.part for each in newer], "damaged": damaged, "older": older}
        output.json_line({"what": "summary", "to_do": [], **names})
    if newer:
        raise CorruptError(newer_format(str(data / newer[0].part), newer[0].found, newer[0].reads))
    if damaged:
        raise CorruptError(f"{data / damaged[0]} is damaged; allowed: what tarry verify {data} says of it")
    if not json:
        output.line(_conclusion(older))


def _fields(part: PartFormat) -> dict[str, object]:
    return {"part": part.part, "found": part.found, "reads": list(part.reads), "writes": part.writes}


def _told(part: PartFormat) -> str:
    from tarry.log.format_version import told

    if part.is_damaged:
        return f"damaged; this release reads {told(part.reads)}"
    what = "read" if part.found == part.writes else f"newer; this release reads {told(part.reads)}"
    if part.found is not None and part.found < part.writes:
        what = f"read; written anew as version {part.writes}"
    return f"version {part.found}, {what}"


def _conclusion(older: list[str]) -> str:
    if not older:
        return "Nothing is to do: all of it has the formats that this release writes."
    return (
        f"Nothing is to do: this release reads all of it. A broker writes {', '.join(older)} anew as it runs, and "
        "then an older release refuses it: for a way back, make a backup before (docs/upgrades.md)."
    )
