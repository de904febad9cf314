"""``tarry history``: what happened to one message."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.base.errors import InvalidArgumentError
from tarry.cli import output
from tarry.cli.exits import ExitCode
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, connect

if TYPE_CHECKING:
    from tarry.api.views import Event, History


def history(
    what: Annotated[str, typer.Argument(metavar="HANDLE|ID", help='As "tarry send" gave it.')],
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Of an id: only of this topic.")] = None,
    accepted: Annotated[
        str | None,
        typer.Option("--accepted", "-a", metavar="PATH", help="Not of a broker: what tarry audit reads."),
    ] = None,
    delivered: Annotated[
        str | None, typer.Option("--delivered", "-d", metavar="PATH", help="And what was delivered.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it there, too, as one HTML file.")
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Show what happened to a message: accepted, cancelled or moved, due, and its state in each group.

    Text output is: time, seq, what happened. What is not known any more is said on stderr. Exit code 8 when nothing is
    known of it. With --accepted and --delivered it is read from the ledgers of an audit (extra "spark"). So is --out.

    \b
    tarry history AQ4AAAAAAAAA...
    tarry history order-7-reminder --topic orders --json
    tarry history order-7-reminder --accepted sent.jsonl --delivered got.jsonl
    """
    if (accepted is None) != (delivered is None):
        raise InvalidArgumentError("--accepted and --delivered are given together, or neither is")
    if accepted is not None and delivered is not None:
        history = _of_ledgers(accepted, delivered, what, topic)
    else:
        with connect(endpoint) as client:
            history = client.history(what, topic=topic)
    if out is not None:
        from tarry.spark.reports.pages.history import history_page
        from tarry.spark.reports.pages.render import write

        source = f"the broker at {endpoint}" if accepted is None else f"the ledgers {accepted} and {delivered}"
        write(out, history_page(history, source, int(time.time() * 1000), output.shown))
    if json:
        output.json_line({**asdict(history), "events": [_data(event) for event in history.events]})
    else:
        for event in history.events:
            output.line(_text(event))
        for sentence in history.unknown:
            output.note(f"not known: {sentence}")
    if not history.events:
        raise typer.Exit(ExitCode.NOT_DONE)


def _of_ledgers(accepted: str, delivered: str, what: str, topic: str | None) -> History:
    from tarry.spark.reports.session import report_session

    with report_session("tarry-history", master="local[*]", memory="1g") as spark:
        from tarry.spark.reports.audit.history import history as of_ledgers
        from tarry.spark.reports.audit.ledgers import read_ledger

        return of_ledgers(read_ledger(spark, accepted), read_ledger(spark, delivered), what, topic=topic)


def _data(event: Event) -> dict[str, object]:
    at_ms = None if event.at_ms is None else int(event.at_ms)
    return {**asdict(event), "at": output.instant(at_ms)}


def _text(event: Event) -> str:
    at = "-" if event.at_ms is None else output.instant(int(event.at_ms))
    details = " ".join(f"{name}={output.shown(name, value)}" for name, value in event.details.items())
    return f"{at or '-':24}  {event.seq if event.seq is not None else '-'}  {event.event:11} {details}".rstrip()
