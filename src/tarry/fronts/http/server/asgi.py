"""Applications of ASGI as handlers."""

from __future__ import annotations

from functools import partial
from typing import cast

from tarry.fronts.http.app import App
from tarry.fronts.http.exchange import HttpApplication, HttpRequest, Work
from tarry.fronts.http.server.message import HttpExchange


def asgi(app: App) -> HttpApplication:
    """Have an ASGI application called, in a task, as soon as a request's headers have come."""
    return HttpApplication(partial(_work, app), whole=False)


def _work(app: App, request: HttpRequest) -> Work:
    exchange = cast(HttpExchange, request)
    return cast(Work, app(exchange.scope, exchange.receive, exchange.send))
