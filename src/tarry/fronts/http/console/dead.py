"""Dead letters: groups that have some, lists of them, scheduling them again, deleting them."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tarry.api.needs import Right
from tarry.base.errors import InvalidArgumentError, NotFoundError, TarryError
from tarry.fronts.http.console.causes import LOOK_S, Cause, CauseJob, Letters, count_causes, pages
from tarry.fronts.http.console.missing import no_group
from tarry.fronts.http.console.page import Console, done, field, link, plural
from tarry.message import reserved
from tarry.message.receipt import id_of

DEAD, PROGRESS = "/console/dead", "/console/dead/progress"
PAGE_ROWS = 50


async def show(console: Console, request: Request) -> Response:
    """Show the dead letters of one group, or the groups that have some."""
    topic, group = request.query_params.get("topic"), request.query_params.get("group")
    if topic and group:
        return await _show_group(console, request, topic, group)
    groups = [info for info in await console.services.groups() if info.dead]
    return console.render(request, "dead_groups.html.j2", groups=sorted(groups, key=lambda info: -info.dead))


async def _show_group(console: Console, request: Request, topic: str, group: str) -> Response:
    query = request.query_params
    after, asked = _whole(query.get("after")), None
    if "cause" in query:
        asked = Cause(query["cause"], query.get("reason", ""))
    try:
        info = await console.services.group_info(topic, group)
    except NotFoundError:
        return await no_group(console, request, topic, group)
    rows, last = await _page(console, topic, group, after, asked)
    letters = [letter(row) for row in rows]
    beside = {} if asked is None else {"cause": asked.cause, "reason": asked.reason}
    return console.render(
        request,
        "dead.html.j2",
        title=f"Dead letters of {group}",
        group=info,
        letters=letters,
        causes=await count_causes(console.services, topic, group),
        asked=asked,
        job=console.cause_jobs.find(topic, group),
        progress=link(PROGRESS, topic=topic, group=group),
        more=link(DEAD, topic=topic, group=group, after=last, **beside) if last is not None else None,
        is_first=after is None,
    )


async def _page(
    console: Console, topic: str, group: str, after: int | None, asked: Cause | None
) -> tuple[Letters, int | None]:
    """Return dead letters of a page, and the offset behind which there are more; None: there are none.

    Of one cause, there may be few of them, or none, and still an offset: a page takes only so long.
    """
    if asked is None:
        # One more than is shown tells whether there is another page.
        found = await console.services.dead_letters(topic, group, limit=PAGE_ROWS + 1, after=after)
        rows = found.to_pylist()
        return rows[:PAGE_ROWS], rows[PAGE_ROWS - 1]["offset"] if len(rows) > PAGE_ROWS else None
    until_s, chosen = time.monotonic() + LOOK_S, list[dict[str, Any]]()
    async for page in pages(console.services, topic, group, after):
        chosen += [row for row in page if Cause.of(row) == asked]
        if len(chosen) > PAGE_ROWS:
            return chosen[:PAGE_ROWS], chosen[PAGE_ROWS - 1]["offset"]
        if time.monotonic() > until_s:
            return chosen, page[-1]["offset"]
    return chosen, None


async def show_progress(console: Console, request: Request) -> Response:
    """Return how far the last action on a group's dead letters is, for who may see them."""
    topic, group = request.query_params.get("topic", ""), request.query_params.get("group", "")
    console.services.principal.check(Right.BROWSE, topic, group, peer=console.services.peer)
    job, progress = console.cause_jobs.find(topic, group), link(PROGRESS, topic=topic, group=group)
    return console.render(request, "dead_progress.html.j2", job=job, progress=progress)


def letter(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with what is known of its death (``dead``, ``at_ms``, ``was_due_ms``)."""
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
    if what not in ("respawn", "purge") or which not in ("all", "chosen", "cause"):
        raise InvalidArgumentError(
            f"action is {action!r:.40}; allowed: respawn-all, respawn-chosen, respawn-cause, purge-…"
        )
    if which == "cause":
        return _begin(console, request, topic, group, what)
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


def _begin(console: Console, request: Request, topic: str, group: str, what: str) -> str:
    """Begin an action on all dead letters of a cause; the page tells how far it is."""
    console.services.principal.check(Right.MANAGE, topic, group, peer=console.services.peer)
    cause = Cause(field(request, "cause"), field(request, "reason"))
    until, total = _whole(field(request, "until")), _whole(field(request, "total"))
    if until is None or total is None:
        raise InvalidArgumentError("the form lacks until or total; allowed: the form of the page")
    job = CauseJob(what, topic, group, cause, until, total)
    if not console.cause_jobs.begin(console.services, job):
        raise InvalidArgumentError("another action on these dead letters is under way; allowed: one at a time")
    return "It has begun: below is how far it is."
