"""The command ``tarry demo`` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tarry.cli.options import Json


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where report and pictures go.")] = Path("demo-out"),
    small: Annotated[bool, typer.Option("--small", help="20,000 departures in 30 seconds.")] = False,
    rows: Annotated[int | None, typer.Option(metavar="N", help="So many departures, evenly out of the year.")] = None,
    seconds: Annotated[float | None, typer.Option(metavar="S", help="How long the year takes; 120.")] = None,
    kill: Annotated[bool, typer.Option("--kill/--no-kill", help="Kill the broker in the middle.")] = True,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Put the broker's data there, and keep it; a new directory.")
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Compare the ledgers once more, by tarry audit.")
    ] = True,
    json: Json = False,
) -> None:
    """Replay a year of flight departures through a broker that is killed on the way.

    Exit code 1 when a message was lost or came early, or most did not go through the Spark store.

    \b
    tarry demo
    tarry demo --small --no-kill
    tarry demo --keep data && tarry serve --data data
    """
    from tarry_demo.main import run

    raise typer.Exit(run(out, small=small, json=json, rows=rows, seconds=seconds, kill=kill, keep=keep, audit=audit))
