"""Topics and groups that a viewer may see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tarry.api.needs import Right
from tarry.fronts.http.console.figures import LISTED_MAX
from tarry.fronts.http.console.page import Console

NOT_TOLD: Mapping[str, None] = {"accepted": None, "fired": None, "cancelled": None}
"""Counts that only the broker's figures have, which list no more than :data:`LISTED_MAX` topics."""


async def listing(console: Console) -> Mapping[str, Any]:
    """Return ``topics`` and ``groups`` of the broker's figures, but those that the viewer may not see."""
    overview = await console.figures.overview()
    if console.may(Right.LOOK):
        return overview
    rights = console.services.principal.rights
    topics = {each["topic"]: each for each in overview["topics"]["listed"] if rights.allow(Right.LOOK, each["topic"])}
    if overview["topics"]["count"] > LISTED_MAX:
        for each in await console.services.pending():
            topics.setdefault(each.topic, {**asdict(each), **NOT_TOLD})
    groups = [each for each in overview["groups"]["listed"] if rights.allow(Right.LOOK, each["topic"], each["group"])]
    if overview["groups"]["count"] > LISTED_MAX:
        groups = [asdict(each) for each in await console.services.groups()]
    return {
        "topics": {"count": len(topics), "listed": list(topics.values())},
        "groups": {"count": len(groups), "listed": groups, "lag": sum(each["lag"] for each in groups)},
    }
