"""``tarry dead``: the dead letters of a group, looked at, sent again, let go of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.base.errors import InvalidArgumentError
from tarry.cli import output
from tarry.cli.group import Group, Topic
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, connect, duration_ms

if TYPE_CHECKING:
    from tarry.client import Client

PAGE_ROWS = 1000

app = typer.Typer(name="dead", help="Dead letters: messages that a group gave up.", no_args_is_help=True)

All = Annotated[bool, typer.Option("--all", help="All of them.")]
Offsets = Annotated[list[int] | None, typer.Option("--offset", metavar="N", help="The one at this offset; repeatable.")]


@app.command("list")
def list_(
    topic: Topic,
    group: Group,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 100,
    after: Annotated[int | None, typer.Option("--after", metavar="N", help="Behind the one at this offset.")] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """List dead letters, oldest first.

    Text output is: offset, when it died, why, after how many tries, id, body.

    \b
    tarry dead list orders billing
    tarry dead list orders billing --json | jq -r .body
    """
    with connect(endpoint) as client:
        found = False
        for row in _rows(client, topic, group, limit, after):
            found = True
            _show(row, json)
        if not found:
            client.group_info(topic, group)  # it refuses a name that there is not


@app.command()
def respawn(
    topic: Topic,
    group: Group,
    everything: All = False,
    offsets: Offsets = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="The oldest so many.")] = None,
    per_second: Annotated[float | None, typer.Option("--per-second", help="At this pace, not at once.")] = None,
    tries: Annotated[int | None, typer.Option("--tries", min=1, help="So many tries; else as many as before.")] = None,
    ttl_ms: Annotated[str | None, typer.Option("--ttl", help="Of use for so long; else for ever.")] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Send dead letters again, to their group alone, as if for the first time.

    \b
    tarry dead respawn orders billing --all --per-second 10
    tarry dead respawn orders billing --offset 7 --offset 9
    """
    _check_choice(everything, offsets, limit)
    ttl = None if ttl_ms is None else duration_ms(ttl_ms, "--ttl")
    with connect(endpoint) as client:
        count = client.respawn(
            topic, group, offsets=offsets or None, limit=limit, per_second=per_second, tries=tries, ttl_ms=ttl
        )
    output.result({"respawned": count}, f"{count:,} respawned", json=json)


@app.command()
def purge(
    topic: Topic,
    group: Group,
    everything: All = False,
    offsets: Offsets = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Let go of dead letters, for good.

    \b
    tarry dead purge orders billing --all
    tarry dead purge orders billing --offset 7
    """
    _check_choice(everything, offsets, None)
    with connect(endpoint) as client:
        count = client.purge(topic, group, offsets=offsets or None)
    output.result({"purged": count}, f"{count:,} purged", json=json)


def _check_choice(everything: bool, offsets: list[int] | None, limit: int | None) -> None:
    if sum((everything, bool(offsets), limit is not None)) != 1:
        raise InvalidArgumentError("which dead letters is not said, or twice; allowed: one of --all, --offset, --limit")


def _rows(client: Client, topic: str, group: str, limit: int, after: int | None) -> Iterator[dict[str, Any]]:
    left = limit
    while left:
        page = client.dead_letters(topic, group, limit=min(left, PAGE_ROWS), after=after)
        yield from page.to_pylist()
        left -= page.num_rows
        if page.num_rows == 0:
            return
        after = page.column("offset")[-1].as_py()


def _show(row: dict[str, Any], json: bool) -> None:
    from tarry.message.receipt import id_of
    from tarry.message.reserved import DEAD, DEAD_CAUSE, DEAD_DUE_MS, DEAD_REASON, DEAD_SEQ

    properties = dict(row["properties"] or [])
    end = {name: text for name, text in properties.items() if name.startswith(DEAD)}
    cause, died = end.get(DEAD_CAUSE, "?"), output.instant(row["due_ms"])
    # Without an id of its own, it had the one that its number made.
    id = row["id"] or id_of(int(end.get(DEAD_SEQ, row["seq"])))
    if not json:
        why = cause if DEAD_REASON not in end else f"{cause} ({output.body_text(end[DEAD_REASON].encode())})"
        cells = (row["offset"], died, why, row["attempt"], id, output.body_text(row["body"]))
        output.line("  ".join(map(str, cells)))
        return
    was_due = end.get(DEAD_DUE_MS)
    output.json_line(
        {
            "offset": row["offset"],
            "cause": cause,
            "reason": end.get(DEAD_REASON),
            "attempt": row["attempt"],
            "died_ms": row["due_ms"],
            "died": died,
            "due_ms": None if was_due is None else int(was_due),
            "id": id,
            **{name: row[name] for name in ("key", "tag", "born_ms")},
            "properties": {name: text for name, text in properties.items() if name not in end},
            **output.body_fields(row["body"]),
        }
    )
