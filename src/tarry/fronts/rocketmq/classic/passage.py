"""The way from a client's connection to a worker on to the front's home in the broker's process.

A worker carries out what producers send. All else goes on in the client's own frames, over one connection a client,
and the home's answers and questions come back in its: lists of clients, locks, positions and waiting pulls are those of
one process, which knows its clients' connections, and when they end.
"""

from __future__ import annotations

import asyncio

from tarry.base.errors import UnavailableError
from tarry.fronts.kit.passing import Origin, pass_on
from tarry.fronts.rocketmq.classic.codes import RequestCode
from tarry.fronts.rocketmq.classic.connection import RemotingConnection
from tarry.fronts.rocketmq.classic.frames import BadFrame, RemotingCommand, frame_length
from tarry.fronts.rocketmq.common.callers import SigningCallers
from tarry.fronts.rocketmq.common.names import DEAD_PREFIX, RETRY_PREFIX
from tarry.fronts.rocketmq.common.properties import REPLY_TO

SENDS = frozenset(
    code & 0xFFFF for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
)
FRAME_BYTES_MAX = 1 << 30


class HomePassage(asyncio.Protocol):
    """The passage of one connection, which connects with the first frame that it takes.

    On the event loop's thread.
    """

    def __init__(self, path: str, callers: SigningCallers, connection: RemotingConnection) -> None:
        self._path = path
        self._callers = callers
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._outgoing: list[bytes] = []
        """Frames that have come before the connection is there."""
        self._received = bytearray()
        self._reading = True
        self._ended = False

    def takes(self, command: RemotingCommand, frame: bytes) -> bool:
        """Pass a frame on; see :class:`tarry.fronts.rocketmq.classic.connection.Passage`."""
        is_send = not command.is_response and command.code & 0xFFFF in SENDS and _is_plain(command)
        if is_send and not self._is_for_home(command):
            return False
        if self._transport is not None:
            self._transport.write(frame)
            return True
        self._outgoing.append(frame)
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect(self._connection.origin))
        return True

    def _is_for_home(self, command: RemotingCommand) -> bool:
        """Return whether a send goes on, too, beside identities.

        It does where the secrets of access keys are not known here; and if its producer waits for a reply, which the
        home hands to connections that it knows to have asked.
        """
        callers = self._callers
        if not callers.has_identities:
            return False
        return callers.lacks_secrets or REPLY_TO in (command.fields.get("i") or command.fields.get("properties") or "")

    def set_reading(self, reading: bool) -> None:
        """Take no answers, or go on; see :class:`tarry.fronts.rocketmq.classic.connection.Passage`."""
        self._reading = reading
        if self._transport is not None and not self._transport.is_closing():
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def end(self) -> None:
        """End it; see :class:`tarry.fronts.rocketmq.classic.connection.Passage`.

        A client may have said goodbye, or where it stands, right before it left: that arrives first. So only this
        side ends, and the home's answers are still taken: one that could not be written would have it drop what it
        has not read yet.
        """
        self._ended = True
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.resume_reading()
            transport.write_eof()

    async def _connect(self, origin: Origin) -> None:
        connection = self._connection
        try:
            transport = await pass_on(self._path, origin, self)
        except UnavailableError as error:
            connection.abort(str(error))
            return
        outgoing, self._outgoing = self._outgoing, []
        transport.write(b"".join(outgoing))
        self._transport = transport  # from now on frames are written at once: the first ones come first
        if self._ended:
            self.end()
        elif not self._reading:
            transport.pause_reading()

    # -- called by asyncio ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._received += data
        end = 0
        try:
            # Whole frames alone: answers of the worker's own may go between them.
            view = memoryview(self._received)
            while (length := frame_length(view[end:], FRAME_BYTES_MAX)) is not None and end + length <= len(view):
                end += length
            whole = bytes(view[:end])
        except BadFrame as error:
            self._connection.abort(str(error))
            return
        finally:
            view.release()
        if whole:
            del self._received[:end]
            self._connection.write(whole)

    def pause_writing(self) -> None:
        self._connection.set_crowded(True)

    def resume_writing(self) -> None:
        self._connection.set_crowded(False)

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.close()


def _is_plain(command: RemotingCommand) -> bool:
    """Return whether a send is for a plain topic: retries and dead letters are the home's."""
    topic = command.fields.get("b") or command.fields.get("topic") or RETRY_PREFIX
    return not topic.startswith((RETRY_PREFIX, DEAD_PREFIX))
