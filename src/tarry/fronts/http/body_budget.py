"""A bound for the bodies of all requests together, whichever application reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from loopgrpc import ByteBudget
from tarry.base.errors import OverloadedError
from tarry.fronts.http.exchange import Headers

BODIES_BYTES_MAX = 256 << 20
"""Bodies of all requests together that are being read or carried out."""


_ALL = "all clients"


class BodyBudget:
    """Limits the bytes of bodies in memory, over all requests. On the event loop's thread."""

    def __init__(self, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self._budget = ByteBudget("bodies of requests", bytes_max, bytes_max)

    def take(self, size: int) -> None:
        """Take ``size`` bytes of the budget.

        Raises:
            OverloadedError: there is no room for ``size`` more now.
        """
        if (refusal := self._budget.take(size, _ALL)) is not None:
            raise OverloadedError(f"{refusal}; try again later")

    def give_back(self, size: int) -> None:
        self._budget.give_back(size, _ALL)

    @contextmanager
    def holding(self, headers: Headers, bytes_max: int) -> Iterator[None]:
        """Hold room for the body of a request: as much as its headers say.

        The limit is ``bytes_max``; a chunked body, whose length is not known, takes all of it.

        Raises:
            OverloadedError: there is none now; nothing of the body needs to be read.
        """
        said = next((int(value) for name, value in headers if name == b"content-length" and value.isdigit()), None)
        chunked = any(name == b"transfer-encoding" for name, _ in headers)
        size = bytes_max if chunked else min(said or 0, bytes_max)
        self.take(size)
        try:
            yield
        finally:
            self.give_back(size)
