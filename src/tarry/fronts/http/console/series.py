"""Recurring series: each by its pending occurrence, its rule, and when it comes next."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tarry.base.errors import ForbiddenError, TarryError
from tarry.fronts.http.console import formatting as shown
from tarry.fronts.http.console.messages import find
from tarry.fronts.http.console.page import Console, link
from tarry.repeat import Repeat, following, read_state

SERIES = "/console/series"
NEXT_MAX = 5


async def show(console: Console, request: Request) -> Response:
    """Show a page of series, by when they come next."""
    topic = request.query_params.get("topic", "").strip()
    cursor = request.query_params.get("cursor") or None
    asked: dict[str, Any] = {"repeating": True, **({"topic": topic} if topic else {})}
    error = None
    rows: list[dict[str, Any]] = []
    after = None
    try:
        rows, after = await find(console, asked, cursor)
    except ForbiddenError as refused:
        error = str(refused)
    return console.render(
        request,
        "series.html.j2",
        403 if error and topic else 200,
        topic=topic,
        error=error,
        rows=[{**row, **_rule(row["repeat"], row["due_ms"])} for row in rows],
        more=link(SERIES, topic=topic, cursor=after) if after else None,
        is_first=cursor is None,
        back=link(SERIES, topic=topic, cursor=cursor),
    )


def _rule(text: str, due_ms: int) -> dict[str, Any]:
    """Return the rule in words, the number of the pending occurrence, and the next ones after it."""
    try:
        state = read_state(text)
    except TarryError as error:  # its zone is not known on this machine
        return {"rule": text, "n": None, "times": None, "next": [], "problem": str(error)}
    upcoming, at_ms = [], due_ms
    for n in range(state.n, state.n + NEXT_MAX):
        following_ms = following(state.repeat, at_ms, n)
        if following_ms is None:
            break
        at_ms = following_ms
        upcoming.append(at_ms)
    return {"rule": words(state.repeat), "n": state.n, "times": state.repeat.times, "next": upcoming, "problem": None}


def words(repeat: Repeat) -> str:
    """Return a rule as people say it: "every 1h", "0 9 * * MON-FRI in Europe/Berlin"."""
    if repeat.expression is not None:
        return f"{repeat.expression} in {repeat.zone}"
    text = f"every {shown.span(repeat.every_ms)}"
    return text if repeat.factor == 1 else f"{text}, each time {repeat.factor:g} times longer"
