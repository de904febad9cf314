"""The past: rates, lateness, lag and herds of up to 30 days, of the broker or of a topic."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tarry.api.needs import Right
from tarry.api.operations import GetRates
from tarry.api.rates import RateHistory
from tarry.fronts.http.console import charts
from tarry.fronts.http.console.listing import listing
from tarry.fronts.http.console.missing import has_topic, no_topic
from tarry.fronts.http.console.page import Console, link
from tarry.fronts.http.console.past_span import AT, address, summed, tells

PAST, DATA = "/console/past", "/console/data/past"
RANGES = {"1h": 3_600_000, "6h": 6 * 3_600_000, "1d": 86_400_000, "7d": 7 * 86_400_000, "30d": 30 * 86_400_000}
RANGE = "6h"
TOLD_MAX = 48
"""Steps in the table of those who do not see charts."""


async def show(console: Console, request: Request) -> Response:
    """Return the page, of a topic or of the whole broker."""
    topic, span = _asked(request)
    topics = sorted(each["topic"] for each in (await listing(console))["topics"]["listed"])
    may_see = bool(topic) or console.may(Right.LOOK)
    history = await _history(console, topic, span, TOLD_MAX) if may_see else None
    if topic and history and not tells(summed(history.points)) and not await has_topic(console, topic):
        return await no_topic(console, request, topic)
    return console.render(
        request,
        "past.html.j2",
        topic=topic,
        topics=topics,
        span=span,
        ranges=[(name, link(PAST, topic=topic, range=name)) for name in RANGES],
        data=link(DATA, topic=topic, range=span),
        at=link(AT, topic=topic),
        address=address,
        history=history,
        overall=console.may(Right.LOOK),
    )


async def data(console: Console, request: Request) -> Response:
    """Return the points for the charts."""
    topic, span = _asked(request)
    return JSONResponse(charts.past_json(await _history(console, topic, span, 720)))


async def _history(console: Console, topic: str, span: str, points_max: int) -> RateHistory:
    since_ms = console.now_ms - RANGES[span]
    return await console.services.call(GetRates(topic=topic or None, since_ms=since_ms, points_max=points_max))


def _asked(request: Request) -> tuple[str, str]:
    query: Any = request.query_params
    span = query.get("range", RANGE)
    return query.get("topic", "").strip(), span if span in RANGES else RANGE
