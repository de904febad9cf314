"""Dispatch of requests to their handlers, and the answers of refused requests."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from tarry.base.errors import TarryError
from tarry.fronts.rocketmq.classic.authentication import Authenticator
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode, code_of
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.frames import RemotingCommand
from tarry.fronts.rocketmq.common.refusal import Refusal

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[OpenRequest], Reply | Awaitable[Reply | None] | None]
"""Handler of a kind of request: returns an answer, at once or awaited, or None if it answers later."""


class Service:
    """Dispatches requests. On the event loop's thread."""

    def __init__(self, authenticator: Authenticator, handlers: Mapping[int, Handler]) -> None:
        self._authenticator = authenticator
        # A ROCKETMQ header only has room for the lower half of a code: the codes of pop arrive in that form.
        self._handlers = {code & 0xFFFF: handler for code, handler in handlers.items()} | dict(handlers)

    @property
    def names_key(self) -> Callable[[RemotingCommand], bool] | None:
        """See :attr:`Authenticator.names_key`."""
        return self._authenticator.names_key

    def serve(self, request: OpenRequest) -> None:
        """Have a request answered, now or later."""
        try:
            self._authenticator.check(request.command)
            request.connection.on_trusted()
            handler = self._handlers.get(request.code)
            if handler is None:
                raise RequestRefused(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f"request code {request.code} is not supported; docs/rocketmq-classic.md lists which are",
                )
            answer = handler(request)
        except Exception as error:  # noqa: BLE001  the client is answered whatever fails
            request.answer(answer_of(error, request))
            return
        if isinstance(answer, Reply):
            request.answer(answer)
        elif answer is not None:
            # A oneway request is carried out though its client has left: consumers commit, and leave.
            request.connection.run(self._finish(request, answer), outlives=request.command.is_oneway)

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
