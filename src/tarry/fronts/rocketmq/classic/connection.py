"""One client's connection: it reads requests, sends answers, and runs work for the client.

Nothing grows without bound by what a client does or leaves undone. The connection is not read while too many of its
requests are open or the client does not read its answers. It is closed when the client has read nothing for
half a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from loopgrpc import ByteBudget, UnreadBytes
from tarry.api.audit import AskedBy
from tarry.base.bounded_cache import BoundedCache
from tarry.base.log_limiter import LogLimiter
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.passing import Origin
from tarry.fronts.kit.peer_proof import PeerProof
from tarry.fronts.kit.writing import ConnectionWriter
from tarry.fronts.rocketmq.classic.codes import ResponseCode
from tarry.fronts.rocketmq.classic.fields import Fields
from tarry.fronts.rocketmq.classic.frames import BadFrame, RemotingCommand, decode, decode_header, encode, frame_length
from tarry.identity.principal import LOCAL, Principal

log = logging.getLogger(__name__)
_closed = LogLimiter(log, logging.INFO)
"""Limited log of closed connections: strangers can cause thousands a second."""

OPEN_REQUESTS_MAX = 2_048
"""Most open requests of a connection. A consumer has one for each queue that it reads."""
OPEN_BYTES_MAX = 32 << 20
HALF_S = 30.0
"""Seconds that a request may take to arrive completely."""
UNTRUSTED_BYTES_MAX = 64 << 10
"""Bytes that an incomplete request may have while no signature of its client has been verified.

A request may have more if its header names an existing key: the signature covers the whole request.
"""
QUESTIONS_MAX = 1_024
"""Most questions to a client that it has not answered."""
QUESTION_S = 10.0
AWAITED_MAX = 1_024
"""Replies that a connection may wait for."""
NO_FIELDS: Mapping[str, str] = {}
H = TypeVar("H")


class Reply(NamedTuple):
    """The answer to a request."""

    code: int = ResponseCode.SUCCESS
    fields: Mapping[str, str] = NO_FIELDS
    body: bytes = b""
    remark: str = ""


class OpenRequest:
    """A request that has not been answered yet."""

    __slots__ = ("_is_open", "bytes", "code", "command", "connection", "fields", "on_answered", "principal")

    def __init__(self, command: RemotingCommand, connection: RemotingConnection, bytes: int) -> None:
        self.command = command
        self.code = command.code
        self.fields = Fields(command.fields)
        self.connection = connection
        self.bytes = bytes
        self.principal = LOCAL
        """The caller, set once the signature was found good."""
        self.on_answered: Callable[[], None] | None = None
        """Called when the request is answered, also if the connection is gone."""
        self._is_open = True

    @property
    def peer_host(self) -> str:
        """The caller's address without its port."""
        return self.connection.peer_host

    @property
    def asked(self) -> AskedBy:
        """The caller, for the audit log."""
        return self.principal.asks(self.peer_host, "rocketmq")

    def answer(self, answer: Reply) -> None:
        """Send the answer. Only the first one counts.

        Nothing is sent for a one-way request, or if the connection is closed.
        """
        if self._is_open:
            self._is_open = False
            if self.on_answered is not None:
                self.on_answered()
            self.connection.on_answered(self, answer)


class Passage(Protocol):
    """Way on for the frames that a worker does not carry out by itself."""

    def takes(self, command: RemotingCommand, frame: bytes) -> bool:
        """Pass a frame on, and return True; False: it is to be carried out here."""
        ...

    def set_reading(self, reading: bool) -> None:
        """Take no answers, or go on: whether the client reads what it is sent."""
        ...

    def end(self) -> None:
        """Pass on what has come, and nothing more: the client's connection has ended."""
        ...


class RemotingConnection(asyncio.Protocol):
    """A client's connection. On the loop's thread.

    ``on_request`` gets each request, unless the passage that ``new_passage`` makes takes it. ``on_closed`` is called
    once, unless the connection was refused. ``budget`` counts the bytes of incomplete requests, of all connections.
    ``names_key`` returns whether a request's header names an existing key, or needs none.
    """

    def __init__(
        self,
        admission: Admission,
        frame_bytes_max: int,
        on_request: Callable[[OpenRequest], None],
        on_closed: Callable[[RemotingConnection], None],
        budget: ByteBudget,
        unread: UnreadBytes,
        names_key: Callable[[RemotingCommand, object], bool],
        new_passage: Callable[[RemotingConnection], Passage] | None = None,
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._admission = admission
        admission.on_drain = self.close
        self._on_request = on_request
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._budget = budget
        self._names_key: Callable[[RemotingCommand, object], bool] | None = names_key
        self._passage = None if new_passage is None else new_passage(self)
        self._crowded = False
        """True while the passage takes no more."""
        self._writer = ConnectionWriter(self._loop, unread, admission.peer_host, self.abort)
        self.write = self._writer.write
        """Sends whole frames to the client."""
        self.wait_until_writable = self._writer.wait_for_room
        """Waits until the client has read most of what it was sent, and its address has room for more."""
        self.room = self._writer.room
        """Returns a limit on unread bytes for the messages that one request is handed."""
        self._counted = 0
        """Bytes of this connection that the budget counts."""
        self._frames = 0
        """Number of requests that have arrived completely."""
        self._half_timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._open_requests = 0
        self._open_bytes = 0
        self._reading = True
        self._tasks: set[asyncio.Task[None]] = set()
        self._outliving: set[asyncio.Task[None]] = set()
        """Kept here because the loop itself keeps no task alive."""
        self._held: dict[Any, Callable[[Any], None]] = {}
        self._questions: dict[int, asyncio.Future[RemotingCommand]] = {}
        """Questions that the client has not answered, by number."""
        self._last_question = 0
        self.principals: set[Principal] = set()
        """Callers that have signed requests of this connection."""
        self.awaited: BoundedCache[tuple[str, str], None] = BoundedCache(AWAITED_MAX)
        """Replies that the client waits for, as its own id and the request's."""
        self.groups: set[str] = set()
        """Groups of consumers that it is in, by its heartbeats."""
        self.local, self.peer = "", ""
        """Both ends as ``HOST:PORT``."""

    @property
    def peer_host(self) -> str:
        """The client's address without its port."""
        return self.peer.rpartition(":")[0]

    @property
    def origin(self) -> Origin:
        """The client's connection, while it is open, for the home that it is passed on to."""
        assert self._transport is not None
        return Origin.of(self._transport, self._admission.principal)

    @property
    def proof(self) -> PeerProof | None:
        """The identity of the client that the connection has proved by itself; None: none."""
        return self._admission.principal

    # -- called by asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writer.begin(self._transport)
        self.local, self.peer = (host_port(transport.get_extra_info(end)) for end in ("sockname", "peername"))
        if self._admission.refusal is not None:
            self.abort(self._admission.refusal)

    def data_received(self, data: bytes) -> None:
        if self._admission.half_open:
            self._admission.begun()
        self._received += data
        self._read_frames()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writer.pause()
        self._set_reading()
        if self._passage is not None:
            self._passage.set_reading(False)

    def resume_writing(self) -> None:
        self._writer.resume()
        if self._passage is not None:
            self._passage.set_reading(True)
        self._set_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._received.clear()
        self._budget.give_back(self._counted, self.peer_host)
        self._counted = 0
        if self._half_timer is not None:
            self._half_timer.cancel()
        self._writer.end()
        for task in self._tasks:
            task.cancel()
        for held, on_lost in list(self._held.items()):
            on_lost(held)
        for answer in self._questions.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("the client's connection has ended"))
        self._admission.released()
        if self._passage is not None:
            self._passage.end()
        if self._admission.refusal is None:
            self._on_closed(self)

    # -- called by the service -----------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def send(self, command: RemotingCommand) -> None:
        """Send a request of the broker's own.

        It is lost if the connection is closed, or if the client does not read what it is sent.
        """
        if self._writer.reads:
            self.write(encode(command))

    async def ask(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> RemotingCommand:
        """Ask the client something, and return its answer.

        Raises:
            TimeoutError: the client has not answered within :data:`QUESTION_S` seconds.
            ConnectionError: the client is gone, does not read what it is sent, or has too many questions already.
        """
        if self.closed or not self._writer.reads or len(self._questions) >= QUESTIONS_MAX:
            raise ConnectionError(f"the client at {self.peer} is gone or takes no questions")
        number = self._last_question = self._last_question % ((1 << 31) - 1) + 1
        answer: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self._questions[number] = answer
        try:
            self.write(encode(RemotingCommand(code, fields, body, number)))
            async with asyncio.timeout(QUESTION_S):
                return await answer
        finally:
            del self._questions[number]

    def run(self, work: Coroutine[Any, Any, None], *, outlives: bool = False) -> None:
        """Run work for this client. It is cancelled when the connection ends, unless it ``outlives`` it."""
        task = self._loop.create_task(work)
        tasks = self._outliving if outlives else self._tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def hold(self, held: H, on_lost: Callable[[H], None]) -> None:
        """Have ``on_lost`` called with ``held`` if the connection ends before :meth:`release`."""
        self._held[held] = on_lost

    def release(self, held: object) -> None:
        self._held.pop(held, None)

    @property
    def is_writable(self) -> bool:
        """True if the client reads what it is sent, and its address does not have too many unread bytes."""
        return self._writer.has_room

    def on_answered(self, request: OpenRequest, answer: Reply) -> None:
        """Stop counting a request as open, and send its answer. Called by the request."""
        self._open_requests -= 1
        self._open_bytes -= request.bytes
        if not request.command.is_oneway:
            self.write(encode(request.command.answer(answer.code, answer.fields, answer.body, answer.remark)))
        self._set_reading()

    def abort(self, reason: str) -> None:
        """Close at once."""
        if self._transport is not None:
            _closed.say("the connection from %s is closed: %s", self.peer, reason)
            self._transport.abort()

    def close(self) -> None:
        """Close once everything that was written has been sent."""
        if self._transport is not None:
            self._writer.flush()
            self._transport.close()

    def set_crowded(self, crowded: bool) -> None:
        """Read no more of the client, or go on: whether the passage takes more."""
        self._crowded = crowded
        self._set_reading()

    def _read_frames(self) -> None:
        self._take_frames()
        if self._received or self._counted:
            self._count_received()

    def _take_frames(self) -> None:
        try:
            while self._reading and not self.closed:
                length = frame_length(self._received, self._frame_bytes_max)
                if length is None or length > len(self._received):
                    self._check_half()
                    return
                frame = bytes(memoryview(self._received)[:length])
                del self._received[:length]
                self._frames += 1
                self._on_frame(frame)
        except BadFrame as error:
            self.abort(str(error))

    def on_trusted(self, *, is_known: bool) -> None:
        """Note that a signature of this client was verified; or (not ``is_known``) that it needs none."""
        self._admission.trusted()
        if is_known:
            self._names_key = None

    def _check_half(self) -> None:
        """Check the size of a request that is incomplete; none of its bytes may have come yet.

        Raises:
            BadFrame: the client has signed nothing with an existing key yet, and may not send a request this long.
        """
        if self._names_key is None or len(self._received) <= UNTRUSTED_BYTES_MAX:
            return
        command = decode_header(self._received)
        if command is None or not self._names_key(command, self.proof):
            raise BadFrame(f"more than {UNTRUSTED_BYTES_MAX} bytes of a request, and nothing signed with a key before")

    def _count_received(self) -> None:
        """Count the bytes of incomplete requests in the budget, and limit the time until they are complete."""
        more = len(self._received) - self._counted
        if more > 0:
            if (refusal := self._budget.take(more, self.peer_host)) is not None:
                self.abort(refusal)
                return
        else:
            self._budget.give_back(-more, self.peer_host)
        self._counted += more
        if self._received and self._half_timer is None:
            self._half_timer = self._loop.call_later(HALF_S, self._check_time, self._frames)

    def _check_time(self, frames: int) -> None:
        self._half_timer = None
        if not self._received or self.closed:
            return
        if frames == self._frames and self._reading:
            self.abort(f"a request has not come whole in {HALF_S:.0f} s")
        else:
            self._half_timer = self._loop.call_later(HALF_S, self._check_time, self._frames)

    def _on_frame(self, frame: bytes) -> None:
        command = decode(frame)
        if self._passage is not None and self._passage.takes(command, frame):
            return
        if command.is_response:
            answer = self._questions.get(command.opaque)
            if answer is not None and not answer.done():
                answer.set_result(command)
            return
        self._open_requests += 1
        self._open_bytes += len(frame)
        self._set_reading()
        self._on_request(OpenRequest(command, self, len(frame)))

    def _set_reading(self) -> None:
        wanted = (
            self._writer.reads
            and self._open_requests < OPEN_REQUESTS_MAX
            and self._open_bytes < OPEN_BYTES_MAX
            and not self._crowded
        )
        if self._transport is None or wanted == self._reading:
            return
        self._reading = wanted
        if not wanted:
            self._transport.pause_reading()
            return
        self._transport.resume_reading()
        # Read what has come already. Not from here: an answer may be given inside of the loop that reads frames.
        self._loop.call_soon(self._read_frames)


def host_port(address: Any) -> str:
    """Return a socket's address as ``HOST:PORT``; empty if it has none."""
    if not isinstance(address, tuple) or len(address) < 2:
        return ""
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{address[1]}"
