"""Dead letters: groups that have some, lists of them, scheduling them again, deleting them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.fronts.http.console.page import Console, done, field, link, plural
from tarry.message import reserved
from tarry.message.receipt import id_of

DEAD = "/console/dead"
PAGE_ROWS = 50


async def show(console: Console, request: Request) -> Response:
    """Show the dead letters of one group, or the groups that have some."""
    topic, group = request.query_params.get("topic"), request.query_params.get("group")
    if topic and group:
        return await _show_group(console, request, topic, group)
    groups = [info for info in await console.services.groups() if info.dead]
    return console.render(request, "dead_groups.html.j2", groups=sorted(groups, key=lambda info: -info.dead))


async def _show_group(console: Console, request: Request, topic: str, group: str) -> Response:
    after = _whole(request.query_params.get("after"))
    info = await console.services.group_info(topic, group)
    # One more than is shown tells whether there is another page.
    found = await console.services.dead_letters(topic, group, limit=PAGE_ROWS + 1, after=after)
    letters = [_letter(row) for row in found.to_pylist()]
    has_more, letters = len(letters) > PAGE_ROWS, letters[:PAGE_ROWS]
    return console.render(
        request,
        "dead.html.j2",
        title=f"Dead letters of {group}",
        group=info,
        letters=letters,
        more=link(DEAD, topic=topic, group=group, after=letters[-1]["offset"]) if has_more else None,
        is_first=after is None,
    )


def _letter(row: dict[str, Any]) -> dict[str, Any]:
    properties = dict(row["properties"] or [])
    dead = {name.removeprefix(reserved.DEAD): text for name, text in properties.items() if name.startswith("tarry.")}
    return {
        **row,
        "id": row["id"] or id_of(row["seq"]),
        "dead": dead,
        "at_ms": _whole(dead.get("at_ms")),
        "was_due_ms": _whole(dead.get("due_ms")),
    }


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else None


async def change(console: Console, request: Request) -> Response:
    """Respawn or purge the letters that were chosen, or all of the group."""
    topic, group, action = field(request, "topic"), field(request, "group"), field(request, "action")
    try:
        text = await _change(console, request, topic, group, action)
    except TarryError as error:
        return done(request, DEAD, str(error), is_error=True, topic=topic, group=group)
    return done(request, DEAD, text, topic=topic, group=group)


async def _change(console: Console, request: Request, topic: str, group: str, action: str) -> str:
    what, _, which = action.partition("-")
    if what not in ("respawn", "purge") or which not in ("all", "chosen"):
        raise InvalidArgumentError(f"action is {action!r:.40}; allowed: respawn-all, respawn-chosen, purge-…")
    offsets = None
    if which == "chosen":
        offsets = [offset for text in request.state.form.get("offset", []) if (offset := _whole(text)) is not None]
        if not offsets:
            raise InvalidArgumentError("no dead letter was chosen")
    if what == "purge":
        return f"{plural(await console.services.purge(topic, group, offsets=offsets), 'dead letter')} deleted."
    pace = field(request, "per_second").strip()
    try:
        per_second = float(pace) if pace else None
    except ValueError:
        raise InvalidArgumentError(f"the pace is {pace!r:.40}; allowed: messages a second, or nothing") from None
    count = await console.services.respawn(topic, group, offsets=offsets, per_second=per_second)
    return f"{plural(count, 'dead letter')} scheduled again, for the group {group}."
