"""``tarry pending`` and ``tarry status``: how a broker is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tarry.base.errors import CorruptError, FatalError, OwnershipLostError, UnavailableError
from tarry.cli import output
from tarry.cli.exits import ExitCode, exit_code
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, RoleData, connect
from tarry.cli.role_text import print_role, refused
from tarry.cli.roles import living_role


def pending(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Only these.")] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Show the pending messages of each topic, and when the next falls due.

    PENDING is not due yet; READY is due, and not acknowledged by the slowest group.

    \b
    tarry pending
    tarry pending orders --json
    """
    with connect(endpoint) as client:
        topics_pending = [t for t in client.pending() if not topics or t.topic in topics]
    if json:
        for topic in topics_pending:
            output.json_line({**asdict(topic), "next_due": output.instant(topic.next_due_ms)})
        return
    rows = [(t.topic, f"{t.pending:,}", output.instant(t.next_due_ms), f"{t.ready:,}") for t in topics_pending]
    output.table(("TOPIC", "PENDING", "NEXT DUE", "READY"), rows)


def status(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    data: RoleData = None,
    json: Json = False,
) -> None:
    """Health and counters of a broker.

    Exit code 1 when it answers but does not serve, 4 when a damaged file ended it, 7 when a disk failed it, 10 when its
    directory became another broker's. With --data, exit code 5 when no process is there, and 1 when a standby cannot
    follow, or cannot reach the bucket.

    \b
    tarry status
    tarry status --json | jq .lateness_ms
    tarry status --data cache   # a standby has no port
    """
    if data is not None:
        role = living_role(data)
        print_role(role, json=json)
        if role.get("problem") or role["bucket"]["error"]:
            raise typer.Exit(ExitCode.FAILED)
        return
    try:
        with connect(endpoint) as client:
            status = client.status()
    except UnavailableError as error:
        raise UnavailableError(refused(endpoint, error)) from error
    output.result(status, status, json=json)
    if status.get("state") != "serving":
        by_code = {each.code: exit_code(each()) for each in (CorruptError, FatalError, OwnershipLostError)}
        raise typer.Exit(by_code.get(status.get("fatal_code") or "", ExitCode.FAILED))
