"""The page of a topic or group that there is not: it says so, and what there is in its place."""

from __future__ import annotations

import difflib

from starlette.requests import Request
from starlette.responses import Response

from tarry.api.needs import Right
from tarry.api.operations import HasTopic
from tarry.fronts.http.console.listing import listing
from tarry.fronts.http.console.page import Console

LIKE_MAX = 5
"""Names that are like the one that was asked for."""
GROUPS_MAX = 20


async def has_topic(console: Console, name: str) -> bool:
    """Return whether there is a topic: it has settings, groups, or messages, if only in the store."""
    return await console.services.call(HasTopic(name)) or name in await console.figures.next_due()


async def no_topic(console: Console, request: Request, name: str) -> Response:
    """Return the page of a topic that there is not, with topics whose names are like it."""
    names = [each["topic"] for each in (await listing(console))["topics"]["listed"]]
    by_folded = {each.casefold(): each for each in names}
    found = difflib.get_close_matches(name.casefold(), by_folded, LIKE_MAX)
    others = [by_folded[each] for each in found]
    return console.render(request, "missing.html.j2", 404, title="No such topic", topic=name, group=None, others=others)


async def no_group(console: Console, request: Request, topic: str, group: str) -> Response:
    """Return the page of a group that there is not, with those of its topic; or that of the topic."""
    if console.may(Right.LOOK, topic) and not await has_topic(console, topic):
        return await no_topic(console, request, topic)
    others = sorted(each.group for each in await console.services.groups(topic))[:GROUPS_MAX]
    return console.render(
        request, "missing.html.j2", 404, title="No such group", topic=topic, group=group, others=others
    )
