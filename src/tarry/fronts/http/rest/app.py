"""Tarry's own API as an ASGI application."""

from __future__ import annotations

from tarry.base.errors import InvalidArgumentError
from tarry.fronts.http.access import Access, peer_of
from tarry.fronts.http.app import App, Receive, Scope, Send
from tarry.fronts.http.errors import HttpError
from tarry.fronts.http.foreign import AccessRefusal
from tarry.fronts.http.rest.answer import Answer, error_answer, send_answer
from tarry.fronts.http.rest.endpoints import routes
from tarry.fronts.http.rest.request import ClientLeftError, RestRequest
from tarry.fronts.http.rest.routes import Route, Router
from tarry.fronts.http.services import HttpServices
from tarry.fronts.kit.unread import Room
from tarry.identity.principal import NOBODY


def rest_app(services: HttpServices, access: Access, pass_on: App | None = None) -> App:
    """Return the application of ``/v1/…``, ``/openapi.json`` and ``/docs``; ``access`` lets clients in.

    ``pass_on`` gets the requests that it would refuse, or cannot decide on.
    """
    return RestApp(routes(services), access, services, pass_on)


class RestApp:
    """Finds the route of a request, and answers whatever becomes of it."""

    def __init__(self, routes: list[Route], access: Access, services: HttpServices, pass_on: App | None) -> None:
        self._router = Router(routes)
        self._access = access
        self._services = services
        self._pass_on = pass_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        admitted = self._access.admit(scope)
        refusal, principal = (admitted, NOBODY) if isinstance(admitted, AccessRefusal) else (None, admitted)
        services = self._services
        peer = peer_of(scope)
        room = Room(services.unread, peer)
        request = RestRequest(scope, receive, services.bodies, room, services.seen_by(principal, peer))
        if self._pass_on is not None and (refusal is not None or self._is_elsewhere(request)):
            await self._pass_on(scope, receive, send)
            return
        if refusal is None:
            services.callers.add(request, principal, request.refuse)
        try:
            if (answer := await self._answered(request, refusal)) is not None:
                await send_answer(answer, request, send)
        finally:
            services.callers.remove(request)
            request.room.release()

    def _is_elsewhere(self, request: RestRequest) -> bool:
        """Return whether only the broker's process can ask for the right that a request needs."""
        if request.desk.principal.rights.is_unlimited:
            return False
        try:
            return self._router.find(request)[0].finds
        except (HttpError, InvalidArgumentError):
            return False  # it is refused here

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
            raise HttpError(refusal.status, refusal.code, refusal.text, headers)
        route, names = self._router.find(request)
        return await route.endpoint(request, names)
