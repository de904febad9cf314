"""``tarry dump``: what is in a log file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tarry.base.errors import NotFoundError
from tarry.cli import output
from tarry.cli.exits import ExitCode
from tarry.cli.options import Json


def dump(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Log files, or a data directory.")],
    rows: Annotated[bool, typer.Option("--rows/--no-rows", help="Each message, or the frames only.")] = True,
    json: Json = False,
) -> None:
    """Print what log files hold, also damaged ones; nothing is changed.

    Exit code 4 when a file is damaged, or ends in a torn write (which a broker cuts off when it starts).

    \b
    tarry dump data/intake/00000000000000000000.log
    tarry dump --no-rows data
    tarry dump --json data | jq -c 'select(.what == "damage")'
    """
    from tarry.broker.dump import dump_file

    damaged = False
    for path in _files(paths):
        for entry in dump_file(path, rows=rows):
            damaged = damaged or entry["what"] == "damage"
            output.result(entry, _text(entry), json=json)
    if damaged:
        raise typer.Exit(ExitCode.CORRUPT)


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            below = sorted(path.rglob("*.log"))
            # The pipeline's log of text has the same ending.
            logs = [p for p in below if p.parent.name in ("intake", "ready", "acks")]
            if not logs:
                raise NotFoundError(f"no log files under {path}")
            yield from logs
        else:
            yield path


def _text(entry: dict[str, Any]) -> str:
    fields = {k: v for k, v in entry.items() if k != "what" and v is not None}
    match entry["what"]:
        case "file":
            return f"{fields.pop('path')}: {_pairs(fields)}"
        case "row":
            if isinstance(body := fields.pop("body", None), bytes):
                fields["body"] = output.body_text(body)
            return f"    {_pairs(fields)}"
        case what:
            return f"  {what} {_pairs(fields)}"


def _pairs(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={output.shown(name, value)}" for name, value in fields.items())
