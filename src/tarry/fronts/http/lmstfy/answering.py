"""Answers each request of both ports, whatever happens, with a request id of its own."""

from __future__ import annotations

import itertools
import logging
import os
import time
from base64 import b32encode

from tarry.base.errors import TarryError
from tarry.fronts.http.exchange import HttpRequest, HttpResponse
from tarry.fronts.http.lmstfy.access_log import AccessLog
from tarry.fronts.http.lmstfy.answers import RefusalError, answer, refusal_of

log = logging.getLogger(__name__)

INTERNAL = answer(500, {"error": "internal error"})


class Answering:
    """On the event loop's thread."""

    def __init__(self, access_log: AccessLog) -> None:
        self._access_log = access_log
        # An id has 26 characters.
        self._prefix = b"0" + b32encode(os.urandom(10))[:13].replace(b"I", b"1").replace(b"O", b"0")
        self._count = itertools.count(1)

    def answer(self, request: HttpRequest, response: HttpResponse, begun_s: float) -> None:
        """Answer a request that has begun at this monotonic time, with a new id."""
        if self._access_log.enabled:
            self._access_log.note(request, response, time.monotonic() - begun_s)
        request.answer(response, b"x-request-id: %s%012d\r\n" % (self._prefix, next(self._count)))

    def refusal(self, request: HttpRequest, error: Exception) -> HttpResponse:
        """Return the answer that an error is; what is no refusal goes to the log."""
        if isinstance(error, RefusalError):
            return error.response
        if not isinstance(error, TarryError):
            log.error("%s %s", request.method, request.path, exc_info=error)
            return INTERNAL
        response = refusal_of(error)
        if response.status == INTERNAL.status:
            log.error("%s %s: %s", request.method, request.path, error)
        return response
