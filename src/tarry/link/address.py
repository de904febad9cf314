"""Addresses of brokers, for clients: ``HOST:PORT``, ``unix:PATH`` or ``tls://HOST:PORT``.

An address in TLS may say which files it takes, ``tls://HOST:PORT?ca=FILE&certificate=FILE&key=FILE``. So it is one text
also where it goes to other processes, as to the tasks of Spark.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from urllib.parse import parse_qsl, quote

from tarry.base.endpoint import SOCKET, parse_address, socket_path, split_addresses
from tarry.base.errors import InvalidArgumentError
from tarry.link.credentials import AdminTokenNotice, look_for_token
from tarry.link.frames import CLIENT
from tarry.link.tls import ClientTls

TLS = "tls://"
"""Before HOST:PORT, in an address."""
FIELDS = tuple(field.name for field in fields(ClientTls))
"""Names behind the question mark of an address."""
FILES = ("ca", "certificate", "key")
"""Those of them that are files."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker's place, and the way to reach it."""

    text: str
    """The address for people, without the names of files."""
    path: str | None = None
    """Path of its socket on this machine; None: ``host`` and ``port``."""
    host: str = ""
    port: int = 0
    tls: ClientTls | None = None
    """None: without TLS."""
    token: str | None = field(default=None, repr=False)
    """Shows the broker who the client is; None: what is found at each connection."""
    notice: AdminTokenNotice | None = field(default=None, repr=False, compare=False)
    """Told of an administrator's token that is found; None: it is for people, who type nothing."""
    listed: str = ""
    """The list of addresses that it is of, if it is of one: see :class:`tarry.link.places.BrokerPlaces`."""

    @classmethod
    def of(cls, address: str | BrokerAddress, tls: ClientTls | None = None, token: str | None = None) -> BrokerAddress:
        """Parse an address.

        With ``tls``, HOST:PORT is in TLS, too, and the environment is not looked at. ``token`` shows the broker who the
        client is; None: what :mod:`tarry.link.credentials` finds.

        Raises:
            InvalidArgumentError: it is none, or it is a socket of this machine and should be in TLS.
        """
        if isinstance(address, BrokerAddress):
            return address
        if token is not None and not isinstance(token, str):
            raise InvalidArgumentError(f"token is of type {type(token).__name__}; allowed: a text")
        # A file's last line ends with a newline, and no token has white space.
        return replace(cls._parsed(address, tls), token=None if token is None else token.strip())

    @classmethod
    def _parsed(cls, address: str, tls: ClientTls | None) -> BrokerAddress:
        if not is_tls(address):
            path = socket_path(address)
            if tls is None:
                host, port = ("", 0) if path is not None else parse_address(address)
                return cls(address, path, host.strip("[]"), port)
            if path is not None:
                raise _refused_socket(address)
            return _in_tls(address, tls)
        place, _, said = address.strip().removeprefix(TLS).partition("?")
        if place.startswith(SOCKET):
            raise _refused_socket(address)
        if tls is None:
            tls = ClientTls.of(_fields(address, said))
        elif said:
            raise InvalidArgumentError(f"address {address!r:.300} and tls both name files; allowed: one of them")
        return _in_tls(place, tls)

    def greeting(self) -> dict[str, str]:
        """Return the fields of a client's HELLO: who it is, if it has a token.

        Raises:
            InvalidArgumentError: a file that should have the token cannot be read.
        """
        if self.token is not None:
            return {"as": CLIENT, "token": self.token}
        found = look_for_token(self.listed or self.text)
        if found is None:
            return {"as": CLIENT}
        if found.admin_path is not None and self.notice is not None:
            self.notice(self.text, found.admin_path)
        return {"as": CLIENT, "token": found.text}

    @property
    def server_name(self) -> str:
        """The name that the broker's certificate must have."""
        return (self.tls.server_name if self.tls is not None else None) or self.host

    def check(self) -> None:
        """Refuse files that are not what they should be.

        Raises:
            InvalidArgumentError: names the file.
        """
        if self.tls is not None:
            self.tls.context()

    def context(self) -> ssl.SSLContext | None:
        """Return the context for a new connection; None without TLS.

        Raises:
            UnavailableError: a file is not what it should be; it may be that it is being replaced.
        """
        return None if self.tls is None else self.tls.context_now()


def is_tls(address: object) -> bool:
    """Return whether an address says that it is in TLS."""
    return isinstance(address, str) and address.strip().startswith(TLS)


def with_files(addresses: str, given: Mapping[str, str], shown: str) -> str:
    """Return an address in TLS that says these fields, and those of this process' environment.

    Of a list it is done for each. An address without TLS stays as it is.

    Args:
        addresses: as a user has given them.
        given: fields of :class:`ClientTls`, which go before those of the address.
        shown: the name of a field to the user, with ``{}`` for the field's own.

    Raises:
        InvalidArgumentError: there are fields, and the address is not in TLS; or the files do not fit together.
    """
    return ",".join(_with_files(each, given, shown) for each in split_addresses(addresses))


def _with_files(address: str, given: Mapping[str, str], shown: str) -> str:
    if not is_tls(address):
        if given:
            name = shown.format(next(iter(given)))
            raise InvalidArgumentError(
                f"{name} is given and the address {address!r:.300} is without TLS; "
                f"allowed: tls://HOST:PORT, or no {name}"
            )
        return address
    place, _, said = address.strip().partition("?")
    tls = ClientTls.of({**_fields(address, said), **given})
    values = {name: getattr(tls, name) for name in FIELDS}
    words = [f"{name}={quote(value, safe='/')}" for name, value in values.items() if value is not None]
    return f"{place}?{'&'.join(words)}" if words else place


def _in_tls(place: str, tls: ClientTls) -> BrokerAddress:
    try:
        host, port = parse_address(place)
    except InvalidArgumentError:
        raise InvalidArgumentError(
            f"address {TLS + place!r:.300}; allowed: tls://HOST:PORT, as in tls://localhost:7611 or tls://[::1]:7611"
        ) from None
    return BrokerAddress(f"{TLS}{place.strip()}", None, host.strip("[]"), port, tls)


def _fields(address: str, said: str) -> dict[str, str]:
    found = dict(parse_qsl(said, keep_blank_values=True))
    for name, value in found.items():
        if name not in FIELDS or not value:
            raise InvalidArgumentError(
                f"address {address!r:.300} says {name}={value!r:.100}; "
                f"allowed behind the question mark: {', '.join(FIELDS)}, with a value"
            )
    return found


def _refused_socket(address: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"address {address!r:.300}: a socket of this machine has no TLS; allowed: unix:PATH without it, or "
        "tls://HOST:PORT"
    )
