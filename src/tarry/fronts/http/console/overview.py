"""The first page with its live parts, the data of its charts, and the health of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from tarry.api.needs import Right
from tarry.api.views import UNITS_MS
from tarry.base.delay import format_ms
from tarry.fronts.http.console import charts
from tarry.fronts.http.console.page import Console

UNIT, TOPICS = "hour", "/console/topics"
ROWS_MAX = 6
"""Topics and groups on the first page."""


async def show(console: Console, request: Request) -> Response:
    """Return the overview, or lead a viewer who may not look at everything to its topics and groups."""
    if not console.may(Right.LOOK):
        return RedirectResponse(TOPICS, 303)
    topic = request.query_params.get("topic", "").strip()
    return console.render(request, "overview.html.j2", **{**await _live(console), "topic": topic})


async def lead(console: Console, request: Request) -> Response:
    """Lead to the overview, whose address is short: others are below ``/console/``."""
    return RedirectResponse("/", 303)


async def live(console: Console, request: Request) -> Response:
    """Return the part of the overview that the page asks for again and again."""
    console.check(Right.LOOK)
    return console.render(request, "live.html.j2", **await _live(console))


async def forecast_data(console: Console, request: Request) -> Response:
    """Return the load to come, for its chart."""
    console.check(Right.LOOK)
    unit = request.query_params.get("unit", UNIT)
    topic = request.query_params.get("topic", "").strip() or None
    forecast = await console.figures.forecast(unit if unit in UNITS_MS else UNIT, topic)
    return JSONResponse(charts.forecast_json(forecast))


async def live_data(console: Console, request: Request) -> Response:
    """Rates and lateness, for their charts; what the page has not yet, with ``after`` (UTC seconds)."""
    console.check(Right.LOOK)
    await console.figures.overview()
    return JSONResponse(charts.live_json(console.figures.points, _ms(request.query_params.get("after", ""))))


def _ms(text: str) -> int:
    try:
        return round(float(text) * 1000)
    except (ValueError, OverflowError):
        return 0


async def _live(console: Console) -> dict[str, Any]:
    figures = console.figures
    overview = await figures.overview()
    topics = sorted(overview["topics"]["listed"], key=lambda t: (-t["pending"] - t["ready"], t["topic"]))
    groups = sorted(overview["groups"]["listed"], key=lambda g: (-g["lag"], -g["dead"], g["topic"], g["group"]))
    return {
        "o": overview,
        "topic": "",
        "point": figures.last,
        "delivered": figures.delivered,
        "bars": charts.lateness_bars(figures.delivered),
        "queued": figures.queued,
        "overdue": figures.overdue,
        "topics": topics[:ROWS_MAX],
        "groups": groups[:ROWS_MAX],
        "dead": sum(group["dead"] for group in overview["groups"]["listed"]),
        "health": health(overview),
    }


def health(overview: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the problems found, each with a text; empty if all is well."""
    found = []
    if overview["state"] != "serving":
        found.append({"level": "bad", "text": _not_serving(overview)})
    damage, disk, pipeline = overview["damage"], overview["disk"], overview["pipeline"]
    found += [{"level": "bad", "text": f"Damaged: {place}"} for place in damage["places"]]
    if damage["unreadable_messages"]:
        count = damage["unreadable_messages"]
        found.append({"level": "bad", "text": f"{count:,} messages that are due soon or were due cannot be read"})
    if disk["free_bytes"] < disk["free_bytes_min"]:
        found.append({"level": "bad", "text": "The disk is nearly full: producers are refused, consumers are served"})
    for listener, address in overview["insecure_open"].items():
        text = f"Whoever reaches {listener} at {address} may do everything: that port asks nobody who they are"
        found.append({"level": "warn", "text": text})
    found += [{"level": "warn", "text": _sentence(port["text"])} for port in overview["clear_ports"]]
    if pipeline.get("error"):
        found.append({"level": "warn", "text": f"The Spark pipeline: {pipeline['error']}"})
    elif pipeline.get("state") in ("waiting", "stopped"):
        found.append({"level": "warn", "text": f"The Spark pipeline is {pipeline['state']}; nothing is late for that"})
    return found


def _not_serving(overview: Mapping[str, Any]) -> str:
    logs = overview.get("log")
    if overview["state"] == "store away" and logs:
        return f"The bucket gives no answer since {format_ms(logs['away_since_ms'])}: nothing is accepted or handed out"
    return f"The broker is {overview['state']}: {overview['fatal'] or 'it stops'}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
