"""``tarry top``: a broker, live in the terminal."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.base.errors import TarryError, UnavailableError
from tarry.cli import output
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, RoleData, connect
from tarry.cli.role_text import Role, print_role, refused, role_lines
from tarry.cli.roles import living_role

if TYPE_CHECKING:
    from tarry.client import Client

PIPE_COLUMNS = 160
"""Width of a frame without a terminal."""
NEXT_DUE_TOPICS_MAX = 1000
"""Beyond so many topics it would take the broker too long to look for each one's next due time."""


def top(
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.1, help="Seconds from one to the next.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, and end.")] = False,
    most: Annotated[int, typer.Option("--most", "-n", min=1, max=1000, help="Most topics and groups.")] = 100,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    data: RoleData = None,
    json: Json = False,
) -> None:
    """Watch a broker: rates, what is pending by topic, lateness, groups, and how its parts are.

    Rates and lateness are of the last interval; a single frame has them since the broker began. End it with Ctrl-C.

    \b
    tarry top
    tarry top --interval 5
    tarry top --once --json | jq .topics
    tarry top --data cache   # a standby, which has no port
    """
    if data is not None:
        _watch_role(data, interval, once, json)
        return
    try:
        with connect(endpoint) as client:
            _watch(client, interval, once, most, json)
    except UnavailableError as error:
        raise UnavailableError(refused(endpoint, error)) from error


def _watch(client: Client, interval: float, once: bool, most: int, json: bool) -> None:
    overview = _overview(client, most, topics=0)
    if once:
        _print(overview, None, json)
        return
    with suppress(KeyboardInterrupt):
        if json or not sys.stdout.isatty():
            _follow(client, overview, interval, most, json)
        else:
            _live(client, overview, interval, most)


def _watch_role(data: Path, interval: float, once: bool, json: bool) -> None:
    role = living_role(data)
    if once:
        print_role(role, json=json)
        return
    with suppress(KeyboardInterrupt):
        if json or not sys.stdout.isatty():
            _follow_role(data, role, interval, json)
        else:
            _live_role(data, role, interval)


def _follow_role(data: Path, role: Role, interval: float, json: bool) -> None:
    while True:
        print_role(role, json=json)
        time.sleep(interval)
        role = living_role(data)


def _live_role(data: Path, role: Role, interval: float) -> None:
    from rich.live import Live

    from tarry.cli.frame import lost, plain

    with Live(plain(role_lines(role)), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            try:
                live.update(plain(role_lines(living_role(data))), refresh=True)
            except UnavailableError as error:
                live.update(lost(str(error)), refresh=True)


def _overview(client: Client, most: int, topics: int) -> dict[str, Any]:
    return client.overview(most=most, next_due=topics <= NEXT_DUE_TOPICS_MAX)


def _print(overview: dict[str, Any], before: dict[str, Any] | None, json: bool) -> None:
    if json:
        output.json_line(overview)
        return
    from rich.console import Console

    from tarry.cli.frame import frame

    console = Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS)
    console.print(frame(overview, before))


def _follow(client: Client, overview: dict[str, Any], interval: float, most: int, json: bool) -> None:
    before = None
    while True:
        _print(overview, before, json)
        time.sleep(interval)
        before, overview = overview, _overview(client, most, overview["topics"]["count"])


def _live(client: Client, overview: dict[str, Any], interval: float, most: int) -> None:
    from rich.live import Live

    from tarry.cli.frame import frame, lost

    with Live(frame(overview, None), screen=True, auto_refresh=False) as live:
        before = None
        while True:
            # What remains beside everything but the rows of the two tables.
            room = max(4, live.console.height - len(live.console.render_lines(frame(overview, before, rows_max=0))))
            live.update(frame(overview, before, rows_max=room), refresh=True)
            time.sleep(interval)
            try:
                before, overview = overview, _overview(client, most, overview["topics"]["count"])
            except UnavailableError as error:
                before = None
                live.update(lost(str(error)), refresh=True)
                overview = _await(client, interval, most)


def _await(client: Client, interval: float, most: int) -> dict[str, Any]:
    """Until the broker is there again."""
    while True:
        time.sleep(interval)
        try:
            return _overview(client, most, topics=0)
        except TarryError:
            continue
