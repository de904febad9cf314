"""Questions that a thread waits for: by connections of their own, made as they are needed, and kept.

One question at a time on each connection, so that its answer needs no search. Where a broker has several addresses,
each new connection begins with a search for its owner.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from tarry.api.wire import decode_error, decode_json
from tarry.base.back_off import BackOff
from tarry.base.endpoint import parse_address
from tarry.base.errors import ClosedError, OwnershipLostError, TarryError, UnauthenticatedError, UnavailableError
from tarry.link.address import BrokerAddress
from tarry.link.frames import (
    CLIENT,
    GREETING_BYTES_MAX,
    HEAD,
    TLS_ALERT,
    FrameKind,
    check_other_side,
    frame,
    hello_frame,
    keep_alive,
    no_broker,
)
from tarry.link.places import FIND_S, PAUSE_S, PAUSE_S_MAX, BrokerPlaces, NoAnswerError, goes_on
from tarry.link.tls_errors import is_final, said

CONNECT_S = 5.0
ANSWER_S = 30.0
_NUMBER = 1
"""Number of the one question of a connection."""


class NoBrokerError(OSError):
    """Another program answers, or a broker that cannot be understood."""


class LinkTrust(Protocol):
    """Credentials of the asking side."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """None: without TLS."""
        ...

    def proof(self, nonce: bytes) -> bytes:
        """Return the proof, for this nonce, of owning the secret."""
        ...


def connect(address: str | BrokerAddress, timeout_s: float = CONNECT_S) -> socket.socket:
    """Connect to a broker, without TLS so far.

    Raises:
        UnavailableError: there is none.
    """
    where = BrokerAddress.of(address)
    try:
        if where.path is None:
            connection = socket.create_connection((where.host, where.port), timeout_s)
        else:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if where.path is None:
                check_other_side(connection)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                keep_alive(connection)
            else:
                connection.settimeout(timeout_s)
                connection.connect(where.path)
        except OSError:
            connection.close()
            raise
    except OSError as error:
        raise UnavailableError(f"the broker at {where.text} cannot be reached: {error.strerror or error}") from error
    return connection


def host_of(address: str) -> str:
    """Return the host that a broker's certificate has to name."""
    return parse_address(address)[0].strip("[]")


class BlockingLink:
    """Connections to one broker. Any thread; of one process."""

    def __init__(
        self,
        address: str | BrokerAddress | BrokerPlaces,
        greeting: Mapping[str, Any] | None = None,
        trust: LinkTrust | None = None,
        find_s: float = FIND_S,
    ) -> None:
        """Make the link, which connects when it is first asked.

        Args:
            address: where its broker is; of several, the owner's is looked for.
            greeting: its fields beside the version; None: a client's, which looks for its token at each connection.
            trust: what the two sides show each other; None: what the address says.
            find_s: seconds for which an owner is looked for; 0: one turn over the addresses.
        """
        self._places = BrokerPlaces.of(address)
        self.address = self._places.text
        self._greeting, self._trust, self._find_s = greeting, trust, find_s
        self._lock = threading.Lock()
        self._free: list[socket.socket] = []
        self._closed = False

    def ask(
        self, kind: FrameKind, *payload: Any, parts: Iterable[Any] = (), timeout_s: float = ANSWER_S
    ) -> tuple[int, memoryview]:
        """Send a frame, and wait for its answer; return its kind and payload.

        ``parts`` are sent behind it as PARTs, until the broker answers. ``timeout_s``: how long the broker may take for
        the answer, and for each part.

        Raises:
            TarryError: the broker refused. UnavailableError: there is no answer; what was asked for may have been done.
        """
        connection = self._take()
        try:
            connection.settimeout(timeout_s)
            connection.sendall(b"".join(frame(kind, _NUMBER, *payload)))
            _send_parts(connection, parts)
            answer_kind, answer, keeps = _answer(connection)
        except OSError as error:
            connection.close()
            raise UnavailableError(f"the broker at {self.address} cannot be reached: {error}") from error
        except BaseException:
            connection.close()
            raise
        refused = decode_error(bytes(answer)) if answer_kind == FrameKind.REFUSED else None
        with self._lock:
            if self._closed or not keeps or isinstance(refused, OwnershipLostError):
                connection.close()
            else:
                self._free.append(connection)
        if refused is not None:
            raise refused
        return answer_kind, answer

    def greet(self) -> dict[str, Any]:
        """Greet the broker anew; return its description of itself."""
        connection, welcome = self._open()
        with self._lock:
            self._free.append(connection)
        return welcome

    def stay(self) -> BrokerAddress:
        """Connect to the address that worked last alone from now on; return it."""
        where = self._places.in_turn()[0]
        self._places, self.address = BrokerPlaces([where]), where.text
        return where

    def close(self) -> None:
        """Refuse all questions from now on."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    def _take(self) -> socket.socket:
        """Return a free connection, or a new one."""
        while True:
            with self._lock:
                if self._closed:
                    raise ClosedError("the link to the broker is closed")
                if not self._free:
                    break
                connection = self._free.pop()
            if not _is_readable(connection):
                return connection
            connection.close()  # its broker has stopped, or is about to
        return self._open()[0]

    def _open(self) -> tuple[socket.socket, dict[str, Any]]:
        """Open a connection; return it with the broker's description of itself.

        Of several addresses, the owner's is looked for, as long as the link was told.
        """
        places = self._places
        if not places.is_several:
            return self._open_at(places.every[0], CONNECT_S, ANSWER_S)
        end_s, back_off = time.monotonic() + self._find_s, BackOff(PAUSE_S, PAUSE_S_MAX)
        while True:
            whys = {}
            for where in places.in_turn():
                try:
                    return self._open_at(where, places.try_s, places.try_s)
                except TarryError as error:
                    if is_final(error.__cause__) or not goes_on(error):
                        raise
                    whys[where] = str(error).removeprefix(str(_unreachable(where, "")))
            pause_s = back_off.fail()
            if time.monotonic() + pause_s >= end_s or self._closed:
                raise places.no_answer(whys)
            time.sleep(pause_s)

    def _open_at(self, where: BrokerAddress, connect_s: float, answer_s: float) -> tuple[socket.socket, dict[str, Any]]:
        """:meth:`_open`, at one address.

        ``connect_s``, ``answer_s``: how many seconds may pass until it is connected, and until each of its answers.
        """
        tls, trust = self._context(where), self._trust
        greeting = where.greeting() if self._greeting is None else self._greeting
        connection = connect(where, connect_s)
        try:
            if tls is not None:
                connection = tls.wrap_socket(connection, server_hostname=where.server_name)
            connection.settimeout(answer_s)
            connection.sendall(b"".join(hello_frame(greeting)))
            length, kind = self._beginning(connection)
            answer = _exactly(connection, length)
            if kind == FrameKind.CHALLENGE and trust is not None:
                connection.sendall(b"".join(frame(FrameKind.PROOF, 0, trust.proof(bytes(answer)))))
                kind, _, answer = _read(connection)
            if kind != FrameKind.WELCOME:
                raise (
                    decode_error(bytes(answer))
                    if kind == FrameKind.REFUSED
                    else TarryError(f"an answer of kind {kind}")
                )
            welcome: dict[str, Any] = decode_json(bytes(answer))
            self._places.on_greeted(where, welcome)
        except NoAnswerError as error:
            connection.close()
            raise _unreachable(where, error) from None
        except OSError as error:
            connection.close()
            raise _unreachable(where, error if where.tls is None else said(error, where)) from error
        except BaseException:
            with suppress(OSError):
                connection.close()
            raise
        return connection, welcome

    def _context(self, where: BrokerAddress) -> ssl.SSLContext | None:
        """Return the TLS of a new connection: the gateway's own, or that of the address."""
        return self._trust.tls if self._trust is not None else where.context()

    def _beginning(self, connection: socket.socket) -> tuple[int, int]:
        """Return the length and the kind of the first frame.

        Raises:
            OSError: what answers is no broker of this release, or the connection has ended.
        """
        is_client = self._greeting is None or self._greeting.get("as") == CLIENT
        beginning = _exactly(connection, len(TLS_ALERT))  # an alert is shorter than a frame's head
        if beginning == TLS_ALERT:
            raise NoBrokerError(no_broker(TLS_ALERT, is_client))
        head = bytes(beginning) + bytes(_exactly(connection, HEAD.size - len(TLS_ALERT)))
        length, kind, _ = HEAD.unpack(head)
        if length > GREETING_BYTES_MAX:
            raise NoBrokerError(no_broker(head, is_client))
        return length, kind


def _unreachable(where: BrokerAddress, why: object) -> UnavailableError:
    return UnavailableError(f"the broker at {where.text} cannot be reached: {why}")


def _send_parts(connection: socket.socket, parts: Iterable[Any]) -> None:
    """Send parts, and then that there are no more; end earlier where the broker has something to say."""
    for part in parts:
        if _is_readable(connection):
            return
        connection.sendall(b"".join(frame(FrameKind.PART, _NUMBER, part)))


def _is_readable(connection: socket.socket) -> bool:
    """Return whether something has come, which may be the end of the connection."""
    if isinstance(connection, ssl.SSLSocket) and connection.pending():
        return True
    poll = select.poll()  # select() takes no descriptors above 1,023
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _answer(connection: socket.socket) -> tuple[int, memoryview, bool]:
    """Return an answer's kind and payload, and False if the connection is of no more use.

    Raises:
        TarryError: why the broker ended the connection. OSError: it did not say.
    """
    ending: TarryError | None = None
    while True:
        try:
            kind, number, payload = _read(connection)
        except ConnectionResetError:
            if isinstance(ending, UnauthenticatedError):  # what was asked for may have been done
                raise UnavailableError(f"the broker has ended the connection: {ending}") from None
            if ending is not None:
                raise ending from None
            raise
        if kind == FrameKind.REFUSED and not number:
            ending = decode_error(bytes(payload))  # it stops; what it was asked before is answered first
        elif number == _NUMBER:
            return kind, payload, ending is None


def _read(connection: socket.socket) -> tuple[int, int, memoryview]:
    length, kind, number = HEAD.unpack(_exactly(connection, HEAD.size))
    return kind, number, _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> memoryview:
    received = memoryview(bytearray(length))
    at = 0
    while at < length:
        count = connection.recv_into(received[at:])
        if not count:
            raise ConnectionResetError("the connection was closed")
        at += count
    return received
