"""A span of the past: its figures by topic, and those of its messages that can still be listed.

That is what is ready and what is dead, of those that fell due in it. What was settled is found by its id alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from starlette.requests import Request
from starlette.responses import Response

from tarry.api.needs import Right
from tarry.api.operations import GetRates
from tarry.api.rates import RatePoint
from tarry.base.errors import InvalidArgumentError
from tarry.fronts.http.console import dead
from tarry.fronts.http.console.causes import LOOK_S, pages
from tarry.fronts.http.console.listing import listing
from tarry.fronts.http.console.messages import PENDING, instant_ms
from tarry.fronts.http.console.missing import has_topic, no_topic
from tarry.fronts.http.console.page import Console, link
from tarry.message.receipt import id_of

AT = "/console/past/at"
MINUTE_MS = 60_000
COUNTS = ("accepted", "fired", "handed_out", "acknowledged")
LEVELS = ("pending", "ready", "dead")
PEEKED_MAX, ROWS_MAX = 200, 50
"""Ready messages that are looked at of a topic, and rows of a list."""
TOPICS_MAX = 20
"""Topics that are looked into for messages, those first of which most fell due."""


@dataclass(frozen=True, slots=True)
class PastSpan:
    """From ``from_ms`` to before ``until_ms``, of a topic, or of all if it is empty."""

    topic: str
    from_ms: int
    until_ms: int

    @property
    def length_ms(self) -> int:
        """Its length."""
        return self.until_ms - self.from_ms

    def has(self, due_ms: int | None) -> bool:
        """Return whether an instant is in it."""
        return due_ms is not None and self.from_ms <= due_ms < self.until_ms

    def moved(self, by: int) -> str:
        """Return the address of the span that is so many lengths later."""
        length_ms = max(self.length_ms, MINUTE_MS)
        return address(self.topic, self.from_ms + by * length_ms, self.from_ms + (by + 1) * length_ms)


def address(topic: str, from_ms: int, until_ms: int) -> str:
    """Return the address of a span's page."""
    return link(AT, topic=topic, **{"from": from_ms, "until": until_ms})


async def show(console: Console, request: Request) -> Response:
    """Return the page."""
    span = _asked(console, request)
    if not span.topic:
        console.check(Right.LOOK)
    whole = await _figures(console, span, span.topic or None)
    if span.topic and not tells(whole) and not await has_topic(console, span.topic):
        return await no_topic(console, request, span.topic)
    listed = [] if span.topic else (await listing(console))["topics"]["listed"]
    topics, is_every_topic = await _by_topic(console, span, [each["topic"] for each in listed])
    # Those without figures, too: the broker was stopped when the messages fell due, and had them ready later.
    names = [span.topic] if span.topic else [row["topic"] for row in topics]
    names += [each["topic"] for each in listed if each["ready"] and each["topic"] not in names]
    letters, is_whole = await _dead(console, span)
    return console.render(
        request,
        "past_span.html.j2",
        span=span,
        whole=whole,
        topics=topics,
        is_every_topic=is_every_topic,
        ready=await _ready(console, span, names[:TOPICS_MAX]),
        letters=letters,
        is_whole=is_whole,
        pending=link(PENDING, topic=span.topic, **{"from": span.from_ms, "until": span.until_ms}),
        peeked_max=PEEKED_MAX,
        rows_max=ROWS_MAX,
    )


def _asked(console: Console, request: Request) -> PastSpan:
    query, now_ms = request.query_params, console.now_ms
    from_ms = instant_ms(query.get("from", ""), now_ms, past=True)
    until_ms = instant_ms(query.get("until", ""), now_ms, past=True)
    if not 0 <= from_ms < until_ms:
        raise InvalidArgumentError("the span is empty; allowed: 'from' before 'until'")
    return PastSpan(query.get("topic", "").strip(), from_ms, until_ms)


async def _figures(console: Console, span: PastSpan, topic: str | None) -> dict[str, Any] | None:
    """Return the sums of the minutes that the span is in; None: none was kept."""
    since_ms, until_ms = span.from_ms // MINUTE_MS * MINUTE_MS, -(-span.until_ms // MINUTE_MS) * MINUTE_MS
    asked = GetRates(topic=topic, since_ms=since_ms, until_ms=until_ms, points_max=1500)
    history = await console.services.call(asked)
    figures = summed(history.points)
    if figures is not None and history.step_ms > MINUTE_MS:  # of a day or more: they begin and end with a step
        figures |= {"since_ms": history.since_ms, "until_ms": history.until_ms}
    return figures


def summed(points: Sequence[RatePoint]) -> dict[str, Any] | None:
    """Return the figures of points together: sums of counts, levels of the last one, the worst lateness."""
    if not points:
        return None
    figures: dict[str, Any] = {name: sum(getattr(point, name) for point in points) for name in COUNTS}
    figures |= {name: getattr(points[-1], name) for name in LEVELS}
    for name in ("lateness_p50_ms", "lateness_p99_ms"):
        figures[name] = max((value for p in points if (value := getattr(p, name)) is not None), default=None)
    herd = max(points, key=lambda point: point.herd_rows)
    return figures | {"herd_rows": herd.herd_rows, "herd_due_ms": herd.herd_due_ms}


def tells(figures: dict[str, Any] | None) -> TypeGuard[dict[str, Any]]:
    """Return whether there is anything in figures: those of a topic that never was are all nothing."""
    return figures is not None and any(figures[name] for name in (*COUNTS, *LEVELS))


async def _by_topic(console: Console, span: PastSpan, names: Iterable[str]) -> tuple[list[dict[str, Any]], bool]:
    """Return the figures of the topics of which some are kept, and whether all were looked at.

    Those come first of which most fell due.
    """
    rows, is_whole, until_s = [], True, time.monotonic() + LOOK_S
    for topic in names:
        if time.monotonic() > until_s:  # each is read from the files of all days
            is_whole = False
            break
        figures = await _figures(console, span, topic)
        if tells(figures):
            rows.append({"topic": topic, **figures})
    rows.sort(key=lambda row: (-row["fired"], -row["ready"] - row["pending"], row["topic"]))
    return rows, is_whole


async def _ready(console: Console, span: PastSpan, names: Iterable[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in names:
        if len(rows) >= ROWS_MAX or not console.may(Right.BROWSE, name):
            continue
        found = (await console.services.peek(name, limit=PEEKED_MAX)).to_pylist()
        rows += [
            {**row, "topic": name, "id": row["id"] or id_of(row["seq"])} for row in found if span.has(row["due_ms"])
        ]
    return rows[:ROWS_MAX]


async def _dead(console: Console, span: PastSpan) -> tuple[list[dict[str, Any]], bool]:
    """Return dead letters that were due in the span, and whether all were looked at."""
    rows: list[dict[str, Any]] = []
    until_s = time.monotonic() + LOOK_S
    for info in await console.services.groups(span.topic or None):
        if not info.dead or not console.may(Right.BROWSE, info.topic, info.group):
            continue
        async for page in pages(console.services, info.topic, info.group, None):
            letters = [dead.letter(row) for row in page]
            rows += [
                {**each, "topic": info.topic, "group": info.group} for each in letters if span.has(each["was_due_ms"])
            ]
            if len(rows) > ROWS_MAX or time.monotonic() > until_s:
                return rows[:ROWS_MAX], False
    return rows, True
