"""Dispatch of requests to their handlers, and the answers of refused requests."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from tarry.base.errors import TarryError
from tarry.fronts.rocketmq.classic.authentication import Authenticator
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode, by_both_forms, code_of
from tarry.fronts.rocketmq.classic.connection import OpenRequest, RemotingConnection, Reply
from tarry.fronts.rocketmq.classic.needs import READING, check_needs
from tarry.fronts.rocketmq.common.callers import SigningCallers
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.identity.principal import LOCAL, Principal

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[OpenRequest], Reply | Awaitable[Reply | None] | None]
"""Handler of a kind of request: returns an answer, at once or awaited, or None if it answers later."""


class Service:
    """Dispatches requests. On the event loop's thread.

    ``translate`` puts the topic that a queue stands for into a request of :data:`READING`, before rights are asked for.
    """

    def __init__(
        self,
        callers: SigningCallers,
        handlers: Mapping[int, Handler],
        translate: Callable[[OpenRequest], None] | None = None,
    ) -> None:
        self._callers = callers
        self._authenticator = Authenticator(callers)
        self._translate = translate
        self.names_key = self._authenticator.names_key
        """See :meth:`Authenticator.names_key`."""
        self.handlers = by_both_forms(handlers)

    def serve(self, request: OpenRequest) -> None:
        """Have a request answered, now or later."""
        try:
            self._identify(request)
            handler = self.handlers.get(request.code)
            if handler is None:
                raise RequestRefused(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f"request code {request.code} is not supported; docs/rocketmq-classic.md lists which are",
                )
            if not request.principal.rights.is_unlimited:
                if self._translate is not None and request.code in READING:
                    self._translate(request)
                check_needs(request)
            answer = handler(request)
        except Exception as error:  # noqa: BLE001  the client is answered whatever fails
            request.answer(answer_of(error, request))
            return
        if isinstance(answer, Reply):
            request.answer(answer)
        elif answer is not None:
            # A oneway request is carried out though its client has left: consumers commit, and leave.
            request.connection.run(self._finish(request, answer), outlives=request.command.is_oneway)

    def forget(self, connection: RemotingConnection) -> None:
        """Look no more at the callers of a connection that has ended."""
        for principal in connection.principals:
            self._callers.remove((connection, principal))

    def _identify(self, request: OpenRequest) -> None:
        """Note whose a request is, and have its connection end when that caller is known no longer."""
        connection = request.connection
        principal = self._identified(request)
        is_known = principal is not None
        request.principal = principal = principal or LOCAL
        if principal not in connection.principals:
            connection.on_trusted(is_known=is_known)
            # First, so that a connection too many is refused at its next request, too.
            self._callers.add(
                (connection, principal), principal, lambda error: connection.abort(str(error)), counts=True
            )
            connection.principals.add(principal)

    def _identified(self, request: OpenRequest) -> Principal | None:
        try:
            return self._authenticator.identify(request.command, request.connection.proof, request.peer_host)
        except (RequestRefused, TarryError) as error:
            self._callers.note_refusal(error, request.peer_host)
            raise

    async def _finish(self, request: OpenRequest, answer: Awaitable[Reply | None]) -> None:
        try:
            if (found := await answer) is not None:
                request.answer(found)
        except Exception as error:  # noqa: BLE001  the client is answered whatever fails
            request.answer(answer_of(error, request))


def answer_of(error: Exception, request: OpenRequest) -> Reply:
    """Return the answer that tells a client of an error."""
    if isinstance(error, RequestRefused):
        return Reply(error.code, remark=error.text)
    if isinstance(error, TarryError):
        error = Refusal.of(error)
    if isinstance(error, Refusal):
        return Reply(code_of(error), remark=error.text)
    log.error("request code %d failed", request.code, exc_info=error)
    return Reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__} in the broker; its log says more")
