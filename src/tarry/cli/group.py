"""``tarry group``: consumer groups, listed, shown, set, paused, moved and deleted."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from tarry.api.settings import GroupFields
from tarry.api.settings import Start as StartName
from tarry.cli import output
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, Start, check_topic_is_known, connect, instant_ms
from tarry.cli.settings import with_settings

if TYPE_CHECKING:
    from tarry.api.group_info import GroupInfo

app = typer.Typer(name="group", help="Consumer groups: what they are told, and where they stand.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="The topic.")]
Group = Annotated[str, typer.Argument(help="The group.")]


@app.command("list")
def list_(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only this topic's.")] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """List groups.

    LAG is what is ready and not settled; LEASED of it is with consumers, WAITING for its next try. DEAD letters are
    beside it.

    \b
    tarry group list
    tarry group list orders --json
    """
    with connect(endpoint) as client:
        infos = client.groups(topic)
        if not infos:
            check_topic_is_known(client, topic)
    if json:
        for info in infos:
            output.json_line(_plain(info))
        return
    rows = [
        (
            *(i.topic, i.group, _state(i)),
            *(f"{n:,}" for n in (i.lag, i.leased, i.waiting, i.dead)),
            output.instant(i.oldest_due_ms),
        )
        for i in infos
    ]
    output.table(("TOPIC", "GROUP", "STATE", "LAG", "LEASED", "WAITING", "DEAD", "OLDEST DUE"), rows)


@app.command()
def show(topic: Topic, group: Group, endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """Show a group's settings, and where its messages are.

    \b
    tarry group show orders billing
    """
    with connect(endpoint) as client:
        _show(client.group_info(topic, group), json)


@app.command()
def consumers(
    topic: Topic,
    group: Group,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Most consumers.")] = 100,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """List the consumers of a group, and what each holds; those that hold most first.

    \b
    tarry group consumers orders billing
    """
    with connect(endpoint) as client:
        found = client.consumers(topic, group, limit=limit)
    if json:
        for each in found:
            output.json_line(asdict(each))
        return
    rows = [
        (
            *(str(each.number), each.identity or "-", each.state, f"{each.held:,}", f"{each.prefetch:,}"),
            *(output.instant(each.oldest_lease_ms), output.instant(each.lease_end_ms), str(each.attempt_max or "-")),
        )
        for each in found
    ]
    output.table(("CONSUMER", "IDENTITY", "STATE", "HELD", "MOST", "OLDEST LEASE", "LEASE ENDS", "TRY"), rows)


@app.command("set")
@with_settings(GroupFields)
def set_(
    topic: Topic,
    group: Group,
    settings: dict[str, Any],
    start: Start = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Change settings of a group; what is not named stays. A group that is new is made.

    \b
    tarry group set orders billing --tries 5 --retry 'exponential 1s max 10m jitter 0.2'
    tarry group set orders audit --start latest --filter 'paid || refunded'
    """
    with connect(endpoint) as client:
        _show(client.set_group(topic, group, start=cast("StartName | None", start), **settings), json)


@app.command()
def pause(topic: Topic, group: Group, endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """Hand out nothing to a group, until it is resumed.

    \b
    tarry group pause orders billing
    """
    with connect(endpoint) as client:
        client.pause(topic, group)
        _show_state(client.group_info(topic, group), json)


@app.command()
def resume(topic: Topic, group: Group, endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """Hand out to a group again.

    \b
    tarry group resume orders billing
    """
    with connect(endpoint) as client:
        client.resume(topic, group)
        _show_state(client.group_info(topic, group), json)


@app.command()
def seek(
    topic: Topic,
    group: Group,
    to: Annotated[str, typer.Argument(help="earliest, latest, or an instant: 2026-12-01T06:00:00Z, UTC milliseconds.")],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Have a group go on from a time: skip what was due before, get again what was due since.

    \b
    tarry group seek orders billing 2026-12-01T06:00:00Z
    tarry group seek orders billing latest
    """
    place = to if re.fullmatch("[a-z]+", to) else instant_ms(to, "TO")
    with connect(endpoint) as client:
        ahead = client.seek(topic, group, place)
    data = {"topic": topic, "group": group, "ahead": ahead}
    output.result(data, f"{ahead:,} ready messages are ahead", json=json)


@app.command()
def delete(topic: Topic, group: Group, endpoint: Endpoint = DEFAULT_ENDPOINT) -> None:
    """Forget a group, and what it has settled. Its consumers end; its dead letters stay.

    \b
    tarry group delete orders billing
    """
    with connect(endpoint) as client:
        client.delete_group(topic, group)


def _plain(info: GroupInfo) -> dict[str, object]:
    return {**_fields(info), "oldest_due": output.instant(info.oldest_due_ms)}


def _fields(info: GroupInfo) -> dict[str, object]:
    """Return a group as plain data: topic and name first, then its settings and where it stands."""
    return {"topic": info.topic, "group": info.group, **asdict(info)}


def _show(info: GroupInfo, json: bool) -> None:
    output.result(_plain(info), _fields(info), json=json)


_STATES = {"runs": "runs", "paused": "is paused", "filter paused": "is not served: its filter is paused"}


def _state(info: GroupInfo) -> str:
    return "paused" if info.paused else "filter paused" if info.filter_paused else "runs"


def _show_state(info: GroupInfo, json: bool) -> None:
    text = f"{info.group} of {info.topic} {_STATES[_state(info)]}; lag {info.lag:,}"
    output.result(_plain(info), text, json=json)
