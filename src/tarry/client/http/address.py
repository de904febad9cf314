"""Addresses of HTTP fronts: ``http://HOST:PORT`` or ``https://…``, several with commas between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from tarry.base.endpoint import parse_address
from tarry.base.errors import InvalidArgumentError

HTTP, HTTPS = "http://", "https://"
_ALLOWED = "http://HOST:PORT or https://HOST:PORT, several with commas between them"


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """One place of a broker."""

    host: str
    port: int
    is_tls: bool

    @property
    def place(self) -> str:
        """``HOST:PORT``, by which tokens are kept."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def text(self) -> str:
        """The address for people."""
        return f"{HTTPS if self.is_tls else HTTP}{self.place}"


def is_http(address: object) -> TypeGuard[str]:
    """Return whether an address says that it is of HTTP."""
    return isinstance(address, str) and address.strip().lower().startswith((HTTP, HTTPS))


def http_addresses(text: str) -> tuple[HttpAddress, ...]:
    """Parse addresses; one that comes twice counts once.

    Raises:
        InvalidArgumentError: one is none.
    """
    return tuple(dict.fromkeys(_address(part.strip()) for part in text.split(",")))


def _address(text: str) -> HttpAddress:
    is_tls = text.lower().startswith(HTTPS)
    place = text[len(HTTPS if is_tls else HTTP) :].removesuffix("/")
    try:
        if not is_http(text):
            raise InvalidArgumentError(text)
        host, port = parse_address(place)
    except InvalidArgumentError:
        raise InvalidArgumentError(f"address {text!r:.300}; allowed: {_ALLOWED}") from None
    return HttpAddress(host.strip("[]"), port, is_tls)
