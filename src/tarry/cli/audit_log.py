"""``tarry audit-log``: who changed what, and who was refused."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.base.errors import InvalidArgumentError
from tarry.cli import output
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, connect, duration_ms, instant_ms, not_empty

if TYPE_CHECKING:
    from tarry.api.audit import AuditRecord

Since = Annotated[str | None, typer.Option("--since", help="From then on: an instant, or 1h for an hour ago.")]
Until = Annotated[str | None, typer.Option("--until", help="Before then: an instant, or 1h for an hour ago.")]


def audit_log(
    since_ms: Since = None,
    until: Until = None,
    who: Annotated[str | None, typer.Option("--who", metavar="NAME", help="Of this caller.")] = None,
    identity: Annotated[
        str | None, typer.Option("--identity", metavar="NAME", help="What it did, and what was done to it.")
    ] = None,
    operation: Annotated[
        str | None,
        typer.Option("--operation", metavar="NAME", help="Of this one; login, right: refusals; reload: files."),
    ] = None,
    outcome: Annotated[
        str | None, typer.Option("--outcome", metavar="WORD", help="begun, done, failed or refused.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="The newest so many.")] = 100,
    before: Annotated[int | None, typer.Option("--before", metavar="N", help="Before line N: the page before.")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="From a data directory, also without a broker.")
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Show who changed identities and settings, and who was refused. Needs the right admin.

    This is about callers. `tarry audit` is about messages: it compares what was accepted with what was delivered.

    \b
    tarry audit-log --since 1h --who billing
    tarry audit-log --identity billing
    tarry audit-log --outcome refused --json
    tarry audit-log --data data
    """
    from tarry.api.operations import ReadAuditLog

    not_empty(who, "--who")
    not_empty(identity, "--identity")
    request = ReadAuditLog(
        since_ms=_instant_ms(since_ms, "--since"),
        until_ms=_instant_ms(until, "--until"),
        who=who,
        identity=identity,
        operation=operation,
        outcome=outcome,
        limit=limit,
        before=before,
    )
    if data is None:
        with connect(endpoint) as client:
            found = client.call(request)
    else:
        found = _read(data, request)
    if json:
        for record in found:
            output.json_line(_plain(record))
        return
    rows = [
        (
            *(each.n, output.instant(each.at_ms), each.who, each.front, each.peer),
            *(each.operation, _outcome(each), _details(each)),
        )
        for each in found
    ]
    output.table(("LINE", "WHEN", "WHO", "PORT", "FROM", "OPERATION", "OUTCOME", "DETAILS"), rows)


def _read(data: Path, request: object) -> list[AuditRecord]:
    from tarry.api.operations import ReadAuditLog
    from tarry.broker.audit_log import DIRECTORY
    from tarry.broker.audit_reading import read_lines

    assert isinstance(request, ReadAuditLog)
    if not (data / DIRECTORY).is_dir():
        raise InvalidArgumentError(f"--data {data} has no audit log; allowed: a directory that tarry serve has had")
    return read_lines(data, request)


def _instant_ms(text: str | None, option: str) -> int | None:
    """Return the instant that is meant: one that is written as such, or so long ago."""
    if text is None:
        return None
    try:
        return instant_ms(text, option)
    except InvalidArgumentError as error:
        try:
            return time.time_ns() // 1_000_000 - duration_ms(text, option)
        except InvalidArgumentError:
            raise InvalidArgumentError(f"{error}, or 1h for an hour ago") from None


def _outcome(record: AuditRecord) -> str:
    text = record.outcome if record.code is None else f"{record.outcome}: {record.code}"
    return f"{text} ({record.more} more)" if record.more else text


def _details(record: AuditRecord) -> str:
    return " ".join(f"{name}={value}" for name, value in record.details.items())


def _plain(record: AuditRecord) -> dict[str, object]:
    plain = asdict(record)
    return {name: value for name, value in plain.items() if value is not None and (name != "more" or value)}
