"""``tarry advance``: move the clock of a broker that was started with ``--test-clock``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tarry.cli import output
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, connect, duration_ms


def advance(
    by: Annotated[str | None, typer.Argument(help="How far: 30d, 1h30m; without it and --to: not at all.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="To which instant: 2027-01-01T00:00:00Z, or UTC milliseconds.")
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option("--wait", help="At each moment, how long consumers have in real time to acknowledge: 2s."),
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Move the clock of a broker that was started with --test-clock; show where it stands.

    When this returns, all that fell due can be received, and what is pushed had an answer.

    \b
    tarry advance 30d
    tarry advance --to 2027-01-01T00:00:00Z
    tarry advance
    """
    with connect(endpoint) as client:
        if by is None and to is None:
            state = client.test_clock()
        else:
            state = client.advance_clock(by, to=to, wait_ms=0 if wait is None else duration_ms(wait, "--wait"))
    output.result(asdict(state), state.now, json=json)
