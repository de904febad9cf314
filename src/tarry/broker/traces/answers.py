"""Answers of a collector are read up to a bound: one that does not end would fill the broker's memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import requests
from requests.adapters import HTTPAdapter

ANSWER_BYTES_MAX = 1 << 20
"""An answer to spans has next to nothing in it."""


class _Bounded:
    """An answer's body, as urllib3 has it; of a longer one the reading fails."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, amount: int, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yield its parts.

        Raises:
            requests.RequestException: there are too many.
        """
        size = 0
        for part in self._raw.stream(amount, decode_content=decode_content):
            size += len(part)
            if size > ANSWER_BYTES_MAX:
                self._raw.close()
                raise requests.RequestException(f"the collector's answer has more than {ANSWER_BYTES_MAX} bytes")
            yield part


class _Adapter(HTTPAdapter):
    def send(self, *args: Any, **kwargs: Any) -> requests.Response:
        response = super().send(*args, **kwargs)
        response.raw = _Bounded(response.raw)
        return response


def bounded_session() -> requests.Session:
    """Return a session whose answers are bounded."""
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter())
    return session
