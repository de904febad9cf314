"""The page of one message's history."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tarry.spark.reports.pages.render import render

if TYPE_CHECKING:
    from tarry.api.views import History


def history_page(history: History, source: str, now_ms: int, shown: Callable[[str, object], str]) -> str:
    """Return the whole page as HTML.

    ``source``: where the events are from, for the reader. What is later than ``now_ms`` is still to come. ``shown``
    returns a detail (name, value) as a text for people.
    """
    return render("history.html.j2", history=history, source=source, now_ms=now_ms, shown=shown)
