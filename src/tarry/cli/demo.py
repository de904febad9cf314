"""``tarry demo``: the whole of Tarry on real input."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from tarry.cli.options import Json
from tarry.errors import NotFoundError


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where report and pictures go.")] = Path("demo-out"),
    small: Annotated[bool, typer.Option("--small", help="A part of the data, in a short time.")] = False,
    json: Json = False,
) -> None:
    """Replay a year of flight departures through a broker that is killed on the way.

    Exit code 1 when a message was lost or came early. Needs the extra "demo".

    \b
    pip install 'tarry[demo]'
    tarry demo
    """
    try:
        run = import_module("tarry.demo").run
    except ModuleNotFoundError as error:
        raise NotFoundError(f"the demo needs {error.name}; it comes with: pip install 'tarry[demo]'") from error
    raise typer.Exit(run(out, small=small, json=json))
