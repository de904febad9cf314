"""Requests to a broker, and their answers. Any thread.

A request is sent once: what may have been carried out is not sent again. Where there are several addresses, one is
tried after the other for as long as none could be reached, and what worked last comes first.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import urllib3
from urllib3.exceptions import HTTPError

from tarry.base.errors import (
    ClosedError,
    InvalidArgumentError,
    InvalidMessageError,
    OwnershipLostError,
    TarryError,
    UnauthenticatedError,
    UnavailableError,
    from_wire,
)
from tarry.client.forks import Birthplace
from tarry.client.http.address import HttpAddress
from tarry.client.http.reasons import is_unsent, reason_of
from tarry.link.credentials import AdminTokenNotice, look_for_token
from tarry.link.tls import ClientTls

R = TypeVar("R")
CONNECT_S = 5.0
"""Seconds that a try to connect may take."""
CONNECTIONS_MAX = 32
"""Connections that are kept for the next request; more are made where more threads ask at a time."""
TIMEOUT_S_MIN = 0.001
JSON = "application/json"
_NO_CONDITION = 412
"""Status of an answer with a receipt: the condition of a message did not hold."""
_NO_TOKEN = (
    "this broker asks who calls, and no token was shown; allowed: TARRY_TOKEN, TARRY_TOKEN_FILE, an entry of the "
    "broker's address in ~/.config/tarry/credentials.toml, or the argument token of Client"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: ``path`` has the query in it."""

    method: str
    path: str
    body: bytes | None = None
    media_type: str = JSON
    accept: str = JSON


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a request that was not refused."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    address: str
    in_doubt: str = ""
    """Consequence of an answer that cannot be read."""

    def json(self) -> Any:
        """Return the JSON that it is.

        Raises:
            TarryError: it is none.
        """
        return self.read(lambda values: values)

    def read(self, decode: Callable[[Any], R]) -> R:
        """Return what ``decode`` makes of the JSON that it is.

        Raises:
            TarryError: it is none, or not what was asked for: of something between here and the broker.
        """
        try:
            return decode(json.loads(self.body))
        except (InvalidArgumentError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise TarryError(
                f"the answer of {self.address} could not be read, and is none of a broker: {self.body[:80]!r}"
                f"{self.in_doubt}; allowed: the address of a broker's HTTP port"
            ) from error


class Exchange:
    """Sends requests to one broker."""

    def __init__(
        self, addresses: tuple[HttpAddress, ...], timeout_s: float, tls: ClientTls | None, token: str | None
    ) -> None:
        """``tls``: of addresses that are https; None: with the files that the environment names.

        Raises:
            InvalidArgumentError: a file is not what it should be; or there is ``tls``, and an address without.
        """
        if token is not None:
            _check_token(token)
        plain = next((each for each in addresses if not each.is_tls), None)
        if tls is not None and plain is not None:
            raise InvalidArgumentError(f"tls is given and the address {plain.text} is without TLS; allowed: https://")
        self._tls = tls if tls is not None or plain is not None else ClientTls.of({})
        if self._tls is not None:
            self._tls.context()
        self._addresses = addresses
        self.text = ",".join(each.text for each in addresses)
        self.timeout_s = timeout_s
        self._given = None if token is None else token.strip()
        self._found: str | None = None
        self._has_looked = False
        self._notice = AdminTokenNotice()
        self._lock = threading.Lock()
        self._pools: dict[tuple[HttpAddress, object], urllib3.HTTPConnectionPool] = {}
        self._last = 0
        """Place of the address that worked last."""
        self.birthplace = Birthplace()
        self._is_closed = False

    def check_open(self) -> None:
        """Raise ClosedError after :meth:`close`, and in a child of the process that made the client."""
        if self._is_closed:
            raise ClosedError(f"the client of {self.text} is closed")
        self.birthplace.check()

    def ask(self, asked: Asked, *, wait_s: float = 0.0, in_doubt: str = "") -> Answered:
        """Send a request, and return its answer.

        Args:
            wait_s: seconds that the broker may take, besides the client's timeout.
            in_doubt: consequence of an answer that does not come.

        Raises:
            TarryError: what the broker refuses it with. UnavailableError: there is no answer.
        """
        self.check_open()
        shown = self._found
        try:
            return self._ask(asked, wait_s, in_doubt)
        except UnauthenticatedError:
            # It was refused, so it may be sent again: with the token that has taken the place of the one shown.
            if self._given is not None or self._look(self._addresses[self._last]) in (None, shown):
                raise
            return self._ask(asked, wait_s, in_doubt)

    def _ask(self, asked: Asked, wait_s: float, in_doubt: str) -> Answered:
        first, whys = self._last, []
        for turn in range(len(self._addresses)):
            at = (first + turn) % len(self._addresses)
            address = self._addresses[at]
            try:
                response = self._sent(address, asked, wait_s)
            except (HTTPError, OSError) as error:
                why = f"no answer from the broker at {address.text}: {reason_of(error, address, self._tls)}"
                if not is_unsent(error):
                    raise UnavailableError(f"{why}{in_doubt}") from error
                whys.append(why)
                continue
            self._last = at
            if 200 <= response.status < 300 or response.status == _NO_CONDITION:
                return Answered(response.status, response.data, response.headers, address.text, in_doubt)
            self._refuse(address, response.status, response.data, in_doubt)
        raise UnavailableError("; ".join(whys), nothing_sent=True)

    def _sent(self, address: HttpAddress, asked: Asked, wait_s: float) -> urllib3.BaseHTTPResponse:
        headers = {"accept": asked.accept, "user-agent": "tarry-client"}
        if asked.body is not None:
            headers["content-type"] = asked.media_type
        if (token := self._token(address)) is not None:
            headers["authorization"] = f"Bearer {token}"
        timeout_s = max(self.timeout_s, TIMEOUT_S_MIN)
        timeout = urllib3.Timeout(connect=min(CONNECT_S, timeout_s), read=timeout_s + wait_s)
        return self._pool(address).urlopen(
            asked.method, asked.path, asked.body, headers, retries=False, redirect=False, timeout=timeout
        )

    def _refuse(self, address: HttpAddress, status: int, body: bytes, in_doubt: str) -> NoReturn:
        error = _error_of(address, status, body, in_doubt)
        if isinstance(error, UnauthenticatedError) and self._given is None and self._found is None:
            error = UnauthenticatedError(_NO_TOKEN)
        if isinstance(error, OwnershipLostError | ClosedError):
            # As on the native link: to a client it is a lost connection, and another address is the owner's. It is not
            # the client that is closed.
            error = UnavailableError(f"{error}{in_doubt}")
        if isinstance(error, UnavailableError):
            self._last = (self._last + 1) % len(self._addresses)
        raise error

    def _pool(self, address: HttpAddress) -> urllib3.HTTPConnectionPool:
        context = self._tls.context_now() if address.is_tls and self._tls is not None else None
        with self._lock:
            key = (address, context)
            if (pool := self._pools.get(key)) is None:
                for former in [each for each in self._pools if each[0] == address]:  # its files have changed
                    self._pools.pop(former).close()
                pool = self._pools[key] = self._new_pool(address, context)
            return pool

    def _new_pool(self, address: HttpAddress, context: Any) -> urllib3.HTTPConnectionPool:
        if not address.is_tls:
            return urllib3.HTTPConnectionPool(address.host, address.port, maxsize=CONNECTIONS_MAX)
        assert self._tls is not None
        name = self._tls.server_name
        return urllib3.HTTPSConnectionPool(
            address.host,
            address.port,
            maxsize=CONNECTIONS_MAX,
            ssl_context=context,
            server_hostname=name,
            assert_hostname=name,
        )

    def _token(self, address: HttpAddress) -> str | None:
        if self._given is not None:
            return self._given
        return self._found if self._has_looked else self._look(address)

    def _look(self, address: HttpAddress) -> str | None:
        found = look_for_token(",".join(each.place for each in self._addresses))
        if found is not None and found.admin_path is not None:
            self._notice(address.place, found.admin_path)
        if found is not None:
            _check_token(found.text)
        self._found = None if found is None else found.text
        self._has_looked = True
        return self._found

    def close(self) -> None:
        """Refuse new requests, and end the connections that are idle."""
        self._is_closed = True
        with self._lock:
            if not self.birthplace.is_elsewhere:
                for pool in self._pools.values():
                    pool.close()
            self._pools.clear()


def _check_token(token: object) -> None:
    if not isinstance(token, str):
        raise InvalidArgumentError(f"token is of type {type(token).__name__}; allowed: a text")
    for at, character in enumerate(token.strip()):
        if not character.isprintable() or ord(character) > 0xFF:  # what a header cannot have
            raise InvalidArgumentError(f"token has {character!r} at {at}; allowed: printable characters of Latin-1")


def _error_of(address: HttpAddress, status: int, body: bytes, in_doubt: str) -> TarryError:
    try:
        said = json.loads(body)
        code, text = str(said["error"]), str(said["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        if status >= 500:  # of what stands in front of the broker
            return UnavailableError(f"the answer of {address.text} has status {status}: {body[:80]!r}{in_doubt}")
        return TarryError(
            f"the answer of {address.text} has status {status} and is none of a broker: {body[:80]!r}; allowed: the "
            "address of a broker's HTTP port"
        )
    if code == "unauthorized":  # of a broker without identities, whose HTTP front asks for a token
        return UnauthenticatedError(text)
    error = from_wire(code, text)
    if isinstance(error, InvalidMessageError) and isinstance(said.get("row"), int):
        error.row = said["row"]
    return error
