"""lmstfy's access log: a line for each request of both ports, where ``POST /accesslog`` has said so."""

from __future__ import annotations

import logging
import re

from tarry.fronts.http.exchange import HttpRequest, HttpResponse

log = logging.getLogger(__name__)

MS = 1000
_TOKEN = re.compile("(/token/[^/]*/)[^/]+")
"""Matches paths of the admin port that name a token, or its id."""


class AccessLog:
    """On the event loop's thread. Off at each start."""

    def __init__(self) -> None:
        self.enabled = False

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
