"""lmstfy's access log: a line for each request of both ports, where ``POST /accesslog`` has said so.

It is switched in one process, and on the board, so that the front's workers do the same. Nobody is told but by it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any

from tarry.api.local import AnyBroker
from tarry.base.event_loop import post
from tarry.fronts.http.exchange import HttpRequest, HttpResponse

log = logging.getLogger(__name__)

FRONT = "http"
_ENABLED, _ASKED = "access_log", "access_log?"
MS = 1000
_TOKEN = re.compile("(/token/[^/]*/)[^/]+")
"""Matches paths of the admin port that name a token, or its id."""


class AccessLog:
    """On the event loop's thread. Off at each start."""

    def __init__(self, broker: AnyBroker, loop: asyncio.AbstractEventLoop) -> None:
        self.enabled = False
        self._member = broker.join(FRONT, lambda sender, message: post(loop, self._on_message, sender, message))
        self.close = self._member.leave
        """Hears and tells nothing any more."""

    def ask(self) -> None:
        """Ask the other processes whether it is on: a worker begins later than they."""
        self._member.send({_ASKED: True})

    def switch(self, enabled: bool) -> None:
        """Switch it on or off, here and in the front's other processes."""
        self.enabled = enabled
        self._member.send({_ENABLED: enabled})

    def _on_message(self, sender: int, message: Mapping[str, Any]) -> None:
        if _ASKED not in message:
            self.enabled = bool(message.get(_ENABLED))
        elif self.enabled:  # another worker that has just begun does not know, and must not say no
            self._member.send({_ENABLED: True}, sender)

    @property
    def status(self) -> str:
        """Return the log's state in lmstfy's words."""
        return "enabled" if self.enabled else "disabled"

    def note(self, request: HttpRequest, response: HttpResponse, spent_s: float) -> None:
        """Write a request's line. Query and path may have a token, which is left out then."""
        query = b"" if b"token=" in request.query or not request.query else b"?" + request.query
        target = _TOKEN.sub(r"\1…", request.path).encode(errors="replace") + query
        spent_ms = spent_s * MS
        log.warning(
            "%s %r: %d after %.1f ms", request.method, target.decode(errors="replace"), response.status, spent_ms
        )
