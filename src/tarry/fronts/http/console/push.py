"""Push subscriptions: their state, the last requests of one or all, pausing, trying and deleting."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tarry.api.operations import ListPushAttempts, ListPushSubscriptions
from tarry.api.push import PushInfo
from tarry.base.errors import InvalidArgumentError, NotFoundError, TarryError
from tarry.base.histogram import Histogram
from tarry.fronts.http.console.page import Console, done, field, plural

PUSH = "/console/push"
ATTEMPTS_MAX = 100


async def show(console: Console, request: Request) -> Response:
    """Show all subscriptions, and the last requests.

    With ``name``: those of one subscription. With ``failed``: only requests that failed.
    """
    name = request.query_params.get("name", "").strip()
    failed = bool(request.query_params.get("failed"))
    subscriptions = await console.services.call(ListPushSubscriptions())
    one = next((each for each in subscriptions if each.name == name), None)
    asked = ListPushAttempts(one.name if one else None, failed=failed, limit=ATTEMPTS_MAX)
    is_told = console.may("manage", one.topic, one.group) if one else not name and console.may("manage")
    attempts = await console.services.call(asked) if is_told else []
    return console.render(
        request,
        "push.html.j2",
        title=name or "Push",
        subscriptions=subscriptions,
        attempts=attempts,
        name=name,
        failed=failed,
        one=one,
        is_told=is_told,
        took=Histogram.from_json(one.duration_us) if one and one.duration_us else None,
        dead=await _dead(console, one) if one else 0,
    )


async def _dead(console: Console, one: PushInfo) -> int:
    try:
        info = await console.services.group_info(one.topic, one.group)
    except NotFoundError:  # somebody has deleted the group by hand
        return 0
    return info.dead


async def change(console: Console, request: Request) -> Response:
    """Carry out what the form's ``action`` says of a subscription."""
    name, action = field(request, "name"), field(request, "action")
    try:
        text, is_error = await _change(console, request, name, action)
    except TarryError as error:
        return done(request, PUSH, str(error), is_error=True, name=name)
    return done(request, PUSH, text, is_error=is_error, name="" if action == "delete" else name)


async def _change(console: Console, request: Request, name: str, action: str) -> tuple[str, bool]:
    """Carry out an action; return its outcome as a text, and whether it is bad."""
    services = console.services
    match action:
        case "pause":
            await services.pause_push(name, reason=field(request, "reason").strip())
            return "Nothing is pushed until it is resumed.", False
        case "resume":
            await services.resume_push(name)
            return "It pushes again.", False
        case "delete":
            await services.delete_push(name, keep_group=bool(field(request, "keep_group")))
            return f"The subscription {name} is deleted.", False
        case "test":
            tried = await services.test_push(name)
            came = f"status {tried.status}" if tried.status is not None else "no answer"
            why = f": {tried.error}" if tried.error else ""
            return f"The test was {tried.outcome} ({came}, {tried.duration_ms:.1f} ms){why}.", tried.outcome != "pushed"
        case "replay":
            info = await services.push_info(name)
            count = await services.respawn(info.topic, info.group)
            return f"{plural(count, 'dead letter')} will be pushed again.", False
        case other:
            raise InvalidArgumentError(f"action is {other!r:.40}; allowed: pause, resume, delete, test, replay")
