"""One connection of a gateway, at the broker: it admits the gateway, and dispatches its frames.

All of it is on the loop's thread; nothing here waits.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Mapping
from typing import Any, cast

from tarry.api.wire import decode_json, encode_json
from tarry.base.errors import InvalidArgumentError, OverloadedError, TarryError
from tarry.base.log_limiter import LogLimiter
from tarry.base.version import VERSION as TARRY
from tarry.fronts.gateway.authentication import NONCE_BYTES
from tarry.fronts.gateway.frames import (
    ASKED_BYTES_MAX,
    CONTROL,
    HELLO_BYTES_MAX,
    LINK,
    VERSION,
    FrameKind,
    LinkFrameReader,
    error_frame,
    frame,
    keep_alive,
)
from tarry.fronts.gateway.served.board import BoardSeat
from tarry.fronts.gateway.served.group_calls import GroupCalls
from tarry.fronts.gateway.served.outgoing import INTERNAL, Outgoing
from tarry.fronts.gateway.served.questions import QUESTIONS, answer
from tarry.fronts.gateway.served.receiving import LinkConsumers
from tarry.fronts.gateway.served.sending import Submissions
from tarry.fronts.gateway.served.settling import Settlements
from tarry.fronts.gateway.served.shared import Shared
from tarry.fronts.gateway.served.tokens import TokenNews
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.front import Front
from tarry.fronts.kit.tls_settings import TlsSettings
from tarry.fronts.registry import FRONTS

log = logging.getLogger(__name__)
_cut = LogLimiter(log, logging.WARNING)
"""Limits the log of connections that are cut: strangers can cause thousands a second."""

TOLD_SETTINGS = (
    *("data", "lease_ms", "dedupe_ms", "retry_ms"),
    *("body_bytes_max", "properties_bytes_max", "delay_ms_max", "delay_levels"),
)
"""The broker's settings that a front needs.

A gateway learns no others, which may have secrets in them.
"""


def _declared(front: str) -> Front | None:
    return next((each for each in FRONTS if each.name == front and each.in_worker), None)


def told_settings(front: str) -> set[str]:
    """Return the names of the settings that a gateway learns: :data:`TOLD_SETTINGS` and its front's own."""
    declared = _declared(front)
    return {*TOLD_SETTINGS, *TlsSettings.model_fields, *(() if declared is None else declared.settings.model_fields)}


Handlers = Mapping[int, Callable[[int, memoryview], None]]
"""Handlers of frames, by kind."""


class ServedLink:
    """The parts of a connection that is a worker's link: consumers, and a member on the board."""

    def __init__(self, shared: Shared, worker: str, front: str, name: str, out: Outgoing) -> None:
        self._shared, self._worker = shared, worker
        self._groups = shared.links[worker] = GroupCalls(shared, worker, out)
        self._consumers = LinkConsumers(shared.groups, out)
        self._seat = BoardSeat(shared.broker.board, front, name, out)
        declared = _declared(front)
        self._tokens = TokenNews(shared.broker, out) if declared is not None and declared.knows_tokens else None
        submissions = Submissions(shared.broker, out)
        self.handlers: Handlers = {
            FrameKind.SUBMIT: submissions.submit,
            FrameKind.SUBMIT_CHECKED: submissions.submit_checked,
            FrameKind.POLL: self._consumers.poll,
            FrameKind.POLL_NOW: self._consumers.poll_now,
            FrameKind.WITHDRAW: self._consumers.withdraw,
            FrameKind.TAKEN: self._consumers.taken,
            FrameKind.UNTAKEN: self._consumers.untaken,
            FrameKind.RENEW: self._consumers.renew,
            FrameKind.CLOSE: self._consumers.close,
            FrameKind.DROP: self._consumers.drop,
            FrameKind.SETTLE: Settlements(shared.groups, out).settle,
            FrameKind.POST: self._seat.post,
            FrameKind.SEND: self._seat.send,
            FrameKind.GROUP: self._groups.answer,
        }
        log.info("gateway %s (%s) has connected", name, worker)

    def stop(self) -> None:
        """End the link, as the connection has ended."""
        if self._shared.links.get(self._worker) is self._groups:
            del self._shared.links[self._worker]
        self._seat.leave()
        if self._tokens is not None:
            self._tokens.stop()
        self._shared.groups.forget(self._groups)
        self._consumers.stop()
        log.info("gateway %s is gone", self._worker)


class ServedConnection(asyncio.Protocol):
    """A connection of a gateway; one that is not a link is for questions alone."""

    def __init__(self, shared: Shared, admission: Admission) -> None:
        self._shared = shared
        self._admission = admission
        self._reader = LinkFrameReader(HELLO_BYTES_MAX)
        self._out = Outgoing(shared.loop)
        self._handlers: Handlers | None = None
        """None until it is admitted."""
        self._challenged: tuple[dict[str, Any], bytes] | None = None
        """The gateway's greeting, and the nonce for which it has to prove the secret."""
        self._link: ServedLink | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out.transport = cast(asyncio.Transport, transport)
        if self._admission.refusal is not None:
            self.refuse(OverloadedError(self._admission.refusal))
            return
        self._admission.on_drain = self.stop
        connection = transport.get_extra_info("socket")
        if connection.family != socket.AF_UNIX:
            keep_alive(connection)

    def data_received(self, data: bytes) -> None:
        if self._out.transport.is_closing():
            return
        try:
            for kind, number, payload in self._reader.feed(data):
                if self._handlers is None:
                    self._handlers = self._begin(kind, payload)
                elif kind in QUESTIONS:
                    self._ask(kind, number, payload)
                else:
                    self._handle(self._handlers.get(kind), kind, number, payload)
        except TarryError as error:
            self.refuse(error)
            return
        halves = self._shared.half_frames
        largest = halves.note(self, self._reader.held)
        if largest is not None:
            largest.refuse(
                OverloadedError(
                    f"frames that have not ended have more than {halves.bytes_max} bytes, and this the most"
                )
            )

    def refuse(self, error: TarryError) -> None:
        """Send the reason, and cut the connection off."""
        _cut.say("a gateway is cut off: %s", error)
        self._shared.half_frames.forget(self)
        self._reader = LinkFrameReader(0)  # frees the received bytes
        self._out.write(error_frame(0, error))
        self._out.flush()
        self._out.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._admission.released()
        self._shared.half_frames.forget(self)
        if self._link is not None:
            self._link.stop()

    def stop(self) -> None:
        """Cut the connection off: the broker stops."""
        self._out.flush()
        self._out.transport.abort()

    def _begin(self, kind: int, payload: memoryview) -> Handlers | None:
        """Take the greeting, and have the secret proved if one is needed.

        Returns handlers of the frames that it may send from now on, beside questions; None until it is admitted.
        """
        trust = self._shared.trust
        if self._challenged is not None:
            said, nonce = self._challenged
            if kind != FrameKind.PROOF:
                raise InvalidArgumentError(f"frame of kind {kind}; allowed: the answer to a challenge")
            trust.check(nonce, bytes(payload))
            return self._admit(said)
        said = self._greeting(kind, payload)
        if trust.secret is None:
            return self._admit(said)
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._challenged = said, nonce
        self._out.write(frame(FrameKind.CHALLENGE, 0, nonce))
        return None

    def _greeting(self, kind: int, payload: memoryview) -> dict[str, Any]:
        said = decode_json(bytes(payload)) if kind == FrameKind.HELLO else None
        if not isinstance(said, dict) or said.get("version") != VERSION or said.get("as") not in (LINK, CONTROL):
            raise InvalidArgumentError(
                f"a gateway began with {bytes(payload[:80])!r}; allowed: a greeting of version {VERSION}, "
                f"of Tarry {TARRY}"
            )
        return said

    def _admit(self, said: dict[str, Any]) -> Handlers:
        self._admission.begun()
        self._reader.bytes_max = ASKED_BYTES_MAX
        worker, front, name = (str(said.get(key, "")) for key in ("worker", "front", "name"))
        if said["as"] == LINK:
            self._link = ServedLink(self._shared, worker, front, name, self._out)
        broker = self._shared.broker
        config = broker.config.model_dump(mode="json", include=told_settings(front))
        welcome = {"version": VERSION, "tarry": TARRY, "now_ms": broker.clock.now_ms(), "config": config}
        self._out.write(frame(FrameKind.WELCOME, 0, encode_json(welcome)))
        if self._link is not None:
            return self._link.handlers
        return {FrameKind.GROUP: GroupCalls(self._shared, worker, self._out).answer}

    def _handle(
        self, handler: Callable[[int, memoryview], None] | None, kind: int, number: int, payload: memoryview
    ) -> None:
        if handler is None:
            raise InvalidArgumentError(f"frame of kind {kind}; allowed: those of docs/formats-gateway.md")
        try:
            handler(number, payload)
        except TarryError as error:
            self._out.refuse(number, error)
        except Exception:
            log.exception("a gateway's frame of kind %d failed", kind)
            self._out.refuse(number, INTERNAL)

    def _ask(self, kind: int, number: int, payload: memoryview) -> None:
        def done(answered: asyncio.Future[list[Any]]) -> None:
            if not answered.cancelled():
                if kind == FrameKind.CALL:
                    self._shared.groups.look()  # its changes are announced to all gateways before it is answered
                self._out.write(answered.result())

        # A copy: the frames that arrived with it need not stay in memory for as long.
        self._shared.run_in_thread(
            answer, self._shared.broker, kind, number, memoryview(bytes(payload))
        ).add_done_callback(done)
