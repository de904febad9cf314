"""``tarry topic``: a topic's settings: what becomes of late messages, and about order."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tarry.api.groups import TopicInfo
from tarry.cli import output
from tarry.cli.group import Topic
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, connect, duration_ms

app = typer.Typer(name="topic", help="Topics: late messages, order.", no_args_is_help=True)


@app.command()
def show(topic: Topic, endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """Show a topic's settings.

    \b
    tarry topic show orders
    """
    with connect(endpoint) as client:
        _show(client.topic_info(topic), json)


@app.command("set")
def set_(
    topic: Topic,
    late: Annotated[
        str | None, typer.Option("--late", help="deliver, drop, or dead (letters); '' is the default.")
    ] = None,
    lateness_max: Annotated[
        str | None, typer.Option("--lateness-max", help="How late one without a ttl may be: 10m; none is any.")
    ] = None,
    ordered: Annotated[
        bool | None, typer.Option("--ordered/--not-ordered", help="All groups keep the order of ordering keys.")
    ] = None,
    declared: Annotated[
        bool | None, typer.Option("--declared/--not-declared", help="It is there before it has a message.")
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Change a topic's settings, what becomes of late messages above all; what is not named stays.

    \b
    tarry topic set orders --late dead --lateness-max 10m
    tarry topic set orders --declared
    """
    latest = None
    if lateness_max is not None:
        latest = -1 if lateness_max == "none" else duration_ms(lateness_max, "--lateness-max")
    with connect(endpoint) as client:
        _show(client.set_topic(topic, late=late, lateness_ms_max=latest, ordered=ordered, declared=declared), json)


def _show(info: TopicInfo, json: bool) -> None:
    if json:
        output.json_line(asdict(info))
    else:
        output.tree(asdict(info))
