"""``tarry topic``: a topic's settings: what becomes of late messages, and about order."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from tarry.api.settings import TopicFields
from tarry.cli import output
from tarry.cli.group import Topic
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, check_topic_is_known, connect
from tarry.cli.settings import with_settings

if TYPE_CHECKING:
    from tarry.api.group_info import TopicInfo

app = typer.Typer(name="topic", help="Topics: late messages, order.", no_args_is_help=True)


@app.command()
def show(topic: Topic, endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """Show a topic's settings; one that nobody has named is not there.

    \b
    tarry topic show orders
    """
    with connect(endpoint) as client:
        check_topic_is_known(client, topic)
        _show(client.topic_info(topic), json)


@app.command("set")
@with_settings(TopicFields)
def set_(topic: Topic, settings: dict[str, Any], endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """Change a topic's settings, what becomes of late messages above all; what is not named stays.

    \b
    tarry topic set orders --late dead --lateness-max 10m
    tarry topic set orders --declared
    """
    with connect(endpoint) as client:
        _show(client.set_topic(topic, **settings), json)


def _show(info: TopicInfo, json: bool) -> None:
    text = asdict(info)
    if info.lateness_ms_max is None:
        text["lateness_ms_max"] = "none"
        if info.late != "deliver":  # as it stands it reads as if all messages that are late were concerned
            text["late"] = f"{info.late}, once its ttl has passed; without a ttl it is delivered"
    output.result(asdict(info), text, json=json)
