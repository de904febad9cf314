"""The console as an ASGI application: which page has which path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tarry.base.addresses import Network
from tarry.base.errors import TarryError
from tarry.base.pages import LOOK
from tarry.fronts.http.access import Access
from tarry.fronts.http.app import App
from tarry.fronts.http.console import (
    compose,
    dead,
    groups,
    login,
    messages,
    overview,
    past,
    past_span,
    push,
    series,
    sign_in,
    system,
)
from tarry.fronts.http.console.cookies import SessionCookie
from tarry.fronts.http.console.figures import ConsoleFigures
from tarry.fronts.http.console.guard import LOGIN, Guard
from tarry.fronts.http.console.guesses import Guesses
from tarry.fronts.http.console.page import HERE, Console, templates
from tarry.fronts.http.console.providers import LoginProviders
from tarry.fronts.http.console.sessions import VisitorSessions
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.settings import HttpSettings

Page = Callable[[Console, Request], Awaitable[Response]]

SHOWN: dict[str, Page] = {
    "/": overview.show,
    "/console/live": overview.live,
    "/console/data/forecast": overview.forecast_data,
    "/console/data/live": overview.live_data,
    past.DATA: past.data,
    past.PAST: past.show,
    past_span.AT: past_span.show,
    "/console/system": system.show,
    "/console/topics": groups.show_all,
    "/console/topic": groups.show_topic,
    "/console/group": groups.show_group,
    "/console/pending": messages.show_pending,
    "/console/message": messages.show_message,
    "/console/message/body": messages.body,
    "/console/history": messages.show_history,
    "/console/dead": dead.show,
    dead.PROGRESS: dead.show_progress,
    "/console/series": series.show,
    "/console/schedule": compose.show_form,
    "/console/jobs": compose.show_jobs,
    "/console/push": push.show,
    LOGIN: login.show,
}
OF_PROVIDERS: dict[str, Page] = {sign_in.BEGIN: sign_in.begin, sign_in.BACK: sign_in.back}
"""The way to a provider, and back."""
CHANGES: dict[str, Page] = {
    "/console/topic": groups.set_topic,
    "/console/group": groups.change_group,
    "/console/message": messages.change,
    "/console/pending/cancel": messages.cancel_many,
    "/console/dead": dead.change,
    "/console/schedule": compose.schedule,
    "/console/jobs/cancel": compose.cancel_job,
    "/console/push": push.change,
    LOGIN: login.log_in,
    "/console/logout": login.log_out,
}


def console_app(services: HttpServices, access: Access, proxies: Sequence[Network] = ()) -> App:
    """Return the pages, for the paths ``/``, ``/console/…`` and ``/static/…``.

    On the event loop's thread. ``proxies``: networks of those that say in ``X-Forwarded-For`` from whom a request is.

    Raises:
        InvalidArgumentError: a setting of logins at providers is not right.
    """
    sessions = VisitorSessions()
    cookie = SessionCookie(HttpSettings.of(services.broker.config).http_console_url)
    providers = LoginProviders.of(services)
    console = Console(
        services, access, sessions, cookie, Guesses(proxies), providers, ConsoleFigures(services), templates()
    )

    services.on_close(lambda _: console.cause_jobs.close())

    async def on_error(request: Request, error: Exception) -> Response:
        return console.seen_by(request.state.principal).refuse(request, error)

    async def on_http_error(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        if not hasattr(request.state, "session"):  # a file that is not there: the guard lets those pass
            return Response(status_code=status)
        text = "There is no such page." if status == 404 else "This is not possible here."
        seen = console.seen_by(request.state.principal)
        return seen.render(request, "error.html.j2", status, title=f"{status}", text=text)

    def go_on(request: Request, further: str, by_itself: bool) -> Response:
        return login.go_on_page(console.seen_by(request.state.principal), request, further, by_itself=by_itself)

    def as_seen(page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            seen = console.seen_by(request.state.principal, console.guesses.peer_of(request))
            return await page(seen, request)

        return show

    routes = [
        *(Route(path, as_seen(page), methods=["GET"]) for path, page in (SHOWN | OF_PROVIDERS).items()),
        *(Route(path, as_seen(page), methods=["POST"]) for path, page in CHANGES.items()),
        *(Route(path, as_seen(overview.lead), methods=["GET"]) for path in ("/console", "/console/")),
        Mount("/static", StaticFiles(directory=HERE / "static", packages=[("tarry.base", LOOK.name)])),
    ]
    # What is handled as Exception is raised again afterwards, for the server's log: bugs, and nothing else.
    handlers = {HTTPException: on_http_error, TarryError: on_error, Exception: on_error}
    app = Starlette(routes=routes, exception_handlers=handlers)
    return Guard(app, access, sessions, cookie, services.broker.clock, go_on)
