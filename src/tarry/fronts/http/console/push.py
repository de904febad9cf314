"""Push subscriptions: how each is, and the last requests of one, or of all."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tarry.api.operations import ListPushAttempts, ListPushSubscriptions
from tarry.fronts.http.console.page import Console

ATTEMPTS_MAX = 100


async def show(console: Console, request: Request) -> Response:
    """All subscriptions, and the last requests; with ``name``, those of one, and with ``failed``, those that failed."""
    name = request.query_params.get("name", "").strip()
    failed = bool(request.query_params.get("failed"))
    subscriptions = await console.services.call(ListPushSubscriptions())
    known = any(each.name == name for each in subscriptions)
    asked = ListPushAttempts(name if known else None, failed=failed, limit=ATTEMPTS_MAX)
    attempts = await console.services.call(asked) if known or not name else []
    return console.render(
        request, "push.html.j2", subscriptions=subscriptions, attempts=attempts, name=name, failed=failed
    )
