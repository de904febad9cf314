"""One connection of the link, at the broker: it admits the other side, and dispatches its frames.

All of it is on the loop's thread; nothing here waits.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections import deque
from collections.abc import Mapping
from typing import Any, cast

from tarry.api.wire import decode_json, encode_json
from tarry.base.errors import InvalidArgumentError, LoginRefusal, OverloadedError, TarryError
from tarry.base.log_limiter import LogLimiter
from tarry.base.version import VERSION as TARRY
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.known_errors import known
from tarry.fronts.link.half_frames import peer_of
from tarry.fronts.link.link_session import LinkSession, NewLinkSession
from tarry.fronts.link.outgoing import Outgoing
from tarry.fronts.link.shared import Shared
from tarry.link.frames import (
    ASKED_BYTES_MAX,
    CLIENT,
    CONTROL,
    HELLO_BYTES_MAX,
    LINK,
    VERSION,
    Frame,
    FrameKind,
    LinkFrameReader,
    error_frame,
    frame,
    keep_alive,
)

log = logging.getLogger(__name__)
_cut = LogLimiter(log, logging.WARNING)
"""Limits the log of connections that are cut: strangers can cause thousands a second."""

NONCE_BYTES = 32


class LinkConnection(asyncio.Protocol):
    """A connection. ``sessions``: by what the other side may say that it connects as."""

    def __init__(self, shared: Shared, sessions: Mapping[str, NewLinkSession], admission: Admission) -> None:
        self._shared = shared
        self._sessions = sessions
        self._admission = admission
        self._peer = peer_of(admission.peer_host)
        self._reader = LinkFrameReader(HELLO_BYTES_MAX)
        self._out = Outgoing(shared.loop, shared.unread, admission.peer_host)
        self._session: LinkSession | None = None
        """None until it is admitted."""
        self._waiting: deque[Frame] = deque()
        """Frames that came before a client who has too much under way could be stopped."""
        self._challenged: tuple[dict[str, Any], bytes] | None = None
        """Its greeting, and the nonce for which it has to prove the secret."""

    # -- called by asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out.begin(cast(asyncio.Transport, transport))
        if self._admission.refusal is not None:
            self.refuse(OverloadedError(self._admission.refusal))
            return
        self._admission.on_drain = self._on_drain
        connection = transport.get_extra_info("socket")
        if connection.family != socket.AF_UNIX:
            keep_alive(connection)

    def data_received(self, data: bytes) -> None:
        if self._out.transport.is_closing():
            return
        is_new = False
        try:
            for kind, number, payload in self._reader.feed(data):
                is_new = True
                if self._session is None:
                    self._session = self._begin(kind, payload)
                elif self.reads and not self._waiting:
                    self._handle(self._session, kind, number, payload)
                else:
                    self._waiting.append((kind, number, payload))
        except TarryError as error:
            self.refuse(error)
            return
        reader = self._reader
        self._shared.half_frames.note(self, self._peer, reader.held, reader.announced, is_new=is_new)

    def pause_writing(self) -> None:
        self._out.pause()
        if self._session is not None:
            self._session.on_writable()

    def resume_writing(self) -> None:
        self._out.resume()
        if self._session is not None:
            self._session.on_writable()

    def connection_lost(self, error: Exception | None) -> None:
        self._admission.released()
        self._shared.half_frames.forget(self)
        self._out.end()
        self._waiting.clear()
        self._reader = LinkFrameReader(0)  # what half a frame has would stay until the next full garbage collection
        if self._session is not None:
            self._session.end()

    def refuse(self, error: TarryError) -> None:
        """Send the reason, and cut the connection off."""
        _cut.say("a link is cut off: %s", error)
        self._shared.half_frames.forget(self)
        self._reader = LinkFrameReader(0)  # frees the received bytes
        self._waiting.clear()
        self._out.write(error_frame(0, error))
        self._out.flush()
        self._out.transport.close()

    # -- the greeting --------------------------------------------------------------------------------------------------

    def _on_drain(self) -> None:
        if self._session is None:
            self._out.abort()
        else:
            self._session.on_drain()

    def _begin(self, kind: int, payload: memoryview) -> LinkSession | None:
        """Take the greeting, and have the secret proved if one is needed; return None until it is admitted."""
        secret = self._shared.secret
        if self._challenged is not None and secret is not None:
            said, nonce = self._challenged
            if kind != FrameKind.PROOF:
                raise InvalidArgumentError(f"frame of kind {kind}; allowed: the answer to a challenge")
            try:
                secret.check(nonce, bytes(payload))
            except InvalidArgumentError:
                self._shared.broker.refusals.login("gateway", self._admission.peer_host, LoginRefusal("gateway"))
                raise
            return self._admit(said)
        said = self._greeting(kind, payload)
        if secret is None:
            return self._admit(said)
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._challenged = said, nonce
        self._out.write(frame(FrameKind.CHALLENGE, 0, nonce))
        return None

    def _greeting(self, kind: int, payload: memoryview) -> dict[str, Any]:
        said = decode_json(bytes(payload)) if kind == FrameKind.HELLO else None
        kinds = tuple(self._sessions)
        if not isinstance(said, dict) or said.get("version") != VERSION or said.get("as") not in kinds:
            _check_port(said)
            raise InvalidArgumentError(
                f"a link began with {_shown(kind, said)}; allowed: a greeting of version {VERSION}, "
                f"as {' or '.join(kinds)}, of Tarry {TARRY}"
            )
        return said

    @property
    def reads(self) -> bool:
        """False while a client is not read, because too much of its is under way."""
        flow = None if self._session is None else self._session.flow
        return flow is None or flow.reads

    def _go_on(self) -> None:
        """Handle the frames that had to wait, as far as there is room."""
        session = self._session
        try:
            while session is not None and self._waiting and self.reads:
                self._handle(session, *self._waiting.popleft())
        except TarryError as error:
            self.refuse(error)

    def _admit(self, said: dict[str, Any]) -> LinkSession:
        self._admission.begun()
        self._admission.trusted()
        self._reader.bytes_max = ASKED_BYTES_MAX
        session = self._sessions[said["as"]](said, self._out, self._admission, self.refuse)
        if session.flow is not None:
            session.flow.on_room = self._go_on
        broker = self._shared.broker
        now_ms = broker.clock.now_ms()
        welcome = {"version": VERSION, "tarry": TARRY, "now_ms": now_ms, "epoch": broker.epoch, **session.welcome}
        self._out.write(frame(FrameKind.WELCOME, 0, encode_json(welcome)))
        return session

    def _handle(self, session: LinkSession, kind: int, number: int, payload: memoryview) -> None:
        handler = session.handlers.get(kind)
        if handler is None:
            raise InvalidArgumentError(f"frame of kind {kind}; allowed: those of docs/formats-link.md")
        try:
            handler(number, payload)
        except Exception as error:  # noqa: BLE001  every error goes to the other side, and bugs to the log
            self._out.refuse(number, known(error))


def _check_port(said: object) -> None:
    """Refuse a gateway where only clients are greeted, in words for who has started it.

    Raises:
        InvalidArgumentError: it is one.
    """
    if isinstance(said, dict) and said.get("version") == VERSION and said.get("as") in (LINK, CONTROL):
        raise InvalidArgumentError(
            "a gateway has come, and this is the broker's port for clients, not the one for gateways; allowed: "
            "the address of the broker's setting gateway (tarry serve --set gateway=HOST:PORT)"
        )


def _shown(kind: int, said: object) -> str:
    """Return what a connection began with, for a log, without the token that a greeting has."""
    if kind != FrameKind.HELLO:
        return f"a frame of kind {kind}"
    if not isinstance(said, dict):
        return f"a greeting that is a JSON {type(said).__name__}"
    version, role = said.get("version"), said.get("as")
    return (
        f"a greeting of version {version if isinstance(version, int) else type(version).__name__}, "
        f"as {role if role in (CLIENT, LINK, CONTROL) else 'something else'}"
    )
