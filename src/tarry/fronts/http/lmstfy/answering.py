"""What becomes of each request, on both ports: an answer whatever happens, with an id of its own."""

from __future__ import annotations

import itertools
import logging
import os
import time
from base64 import b32encode
from collections.abc import Awaitable, Callable

from tarry.base.errors import TarryError
from tarry.fronts.http.exchange import DisconnectedError, HttpRequest, HttpResponse
from tarry.fronts.http.lmstfy.access_log import AccessLog
from tarry.fronts.http.lmstfy.answers import RefusalError, answer, refusal_of

log = logging.getLogger(__name__)

INTERNAL = answer(500, {"error": "internal error"})


class Answering:
    """On the loop's thread."""

    def __init__(self, access_log: AccessLog) -> None:
        self._access_log = access_log
        self.ids = RequestIds()
        """For who answers without :meth:`answer`."""

    async def answer(
        self, request: HttpRequest, carry_out: Callable[[HttpRequest], Awaitable[HttpResponse]]
    ) -> HttpResponse:
        """
        Raises:
            DisconnectedError: nobody waits for an answer.
        """
        begun_s = time.monotonic()
        try:
            response = await carry_out(request)
        except RefusalError as refusal:
            response = refusal.response
        except TarryError as error:
            response = self.refusal(request, error)
        except DisconnectedError:
            raise
        except Exception:
            log.exception("%s %s", request.method, request.path)
            response = INTERNAL
        if self._access_log.enabled:
            self._access_log.note(request, response, time.monotonic() - begun_s)
        return self.identified(response)

    def identified(self, response: HttpResponse) -> HttpResponse:
        """An answer with the id of its request."""
        return response._replace(lines=response.lines + self.ids.next())

    def refusal(self, request: HttpRequest, error: TarryError) -> HttpResponse:
        """The answer that is what the broker refused."""
        response = refusal_of(error)
        if response.status == INTERNAL.status:
            log.error("%s %s: %s", request.method, request.path, error)
        return response


class RequestIds:
    """A new id for each request, of 26 characters."""

    def __init__(self) -> None:
        self._prefix = b"0" + b32encode(os.urandom(10))[:13].replace(b"I", b"1").replace(b"O", b"0")
        self._count = itertools.count(1)

    def next(self) -> bytes:
        """As a line of a header."""
        return b"x-request-id: %s%012d\r\n" % (self._prefix, next(self._count))
