"""Tarry's own API as an ASGI application."""

from __future__ import annotations

from loopgrpc import UnreadBytes
from tarry.fronts.http.access import Access, AccessRefusal
from tarry.fronts.http.app import App, Receive, Scope, Send
from tarry.fronts.http.body_budget import BodyBudget
from tarry.fronts.http.errors import HttpError
from tarry.fronts.http.rest.answer import Answer, error_answer, send_answer
from tarry.fronts.http.rest.endpoints import routes
from tarry.fronts.http.rest.request import ClientLeftError, RestRequest
from tarry.fronts.http.rest.routes import Route, Router
from tarry.fronts.http.services import HttpServices
from tarry.fronts.kit.unread import Room

CODES = {401: "unauthorized", 403: "forbidden"}


def rest_app(services: HttpServices, access: Access, pass_on: App | None = None) -> App:
    """Return the application of ``/v1/…``, ``/openapi.json`` and ``/docs``; ``access`` lets clients in.

    ``pass_on`` gets the requests that it would refuse.
    """
    return RestApp(routes(services), access, services.bodies, services.unread, pass_on)


class RestApp:
    """Finds the route of a request, and answers whatever becomes of it."""

    def __init__(
        self, routes: list[Route], access: Access, bodies: BodyBudget, unread: UnreadBytes, pass_on: App | None
    ) -> None:
        self._router = Router(routes)
        self._access = access
        self._budget = bodies
        self._unread = unread
        self._pass_on = pass_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._access.refusal(scope)
        if refusal is not None and self._pass_on is not None:
            await self._pass_on(scope, receive, send)
            return
        request = RestRequest(scope, receive, self._budget, Room(self._unread, (scope["client"] or ("",))[0]))
        try:
            if (answer := await self._answered(request, refusal)) is not None:
                await send_answer(answer, request, send)
        finally:
            request.room.release()

    async def _answered(self, request: RestRequest, refusal: AccessRefusal | None) -> Answer | None:
        """None: nobody is there to be answered."""
        try:
            return await self._answer(request, refusal)
        except ClientLeftError:
            return None
        except Exception as error:  # noqa: BLE001  every error goes to the client, and bugs to the log
            return error_answer(error)
        finally:
            request.close()

    async def _answer(self, request: RestRequest, refusal: AccessRefusal | None) -> Answer:
        if refusal is not None:
            headers = {"www-authenticate": "Bearer"} if refusal.status == 401 else {}
            raise HttpError(refusal.status, CODES[refusal.status], refusal.text, headers)
        route, names = self._router.find(request)
        return await route.endpoint(request, names)
