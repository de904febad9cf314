"""The connection between the driver and a long task: plans and orders one way, results the other.

It uses Python's own connections, with their handshake by a key that only the tasks of this driver's jobs get. What is
said is JSON (:mod:`tarry_relay.messages`): a pickle of whoever is on the path would run as code. A task connects to the
driver, as Spark's executors do. When one side ends, the other finds out at its next poll: a task then ends, too.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

from tarry.base.errors import UnavailableError
from tarry_relay.clients import bounded
from tarry_relay.messages import Hello, Message, decode, encode

log = logging.getLogger(__name__)

CONNECT_S = 15.0
GREETING_S = 15.0
"""Seconds for a new connection to show the key, and say who it is."""
GREETING_MAX = 256
"""Connections that may be at it; more are cut off."""
MESSAGE_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class Address:
    """The driver's address for its tasks, and the key by which both sides authenticate."""

    host: str
    port: int
    key: bytes


class Channel:
    """One side of a connection. One thread sends and another may receive."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        # A result is written in two parts, and the second one must not wait until the first is acknowledged.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def connect(cls, address: Address, hello: Hello) -> Channel:
        """Connect a task to its driver; ``hello`` identifies the task.

        Raises:
            UnavailableError: the driver cannot be reached from here.
        """
        try:
            connection = bounded(
                f"the driver at {address.host}:{address.port}",
                lambda: Client((address.host, address.port), authkey=address.key),
                CONNECT_S,
            )
            line = cls(connection)
        except OSError as error:
            raise UnavailableError(
                f"this executor cannot reach the driver at {address.host}:{address.port} ({error}); set "
                "spark.driver.host to a name by which executors reach it, and open its ports to them"
            ) from error
        line.send(hello)
        return line

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            UnavailableError: the other side is gone.
        """
        try:
            self._connection.send_bytes(encode(message))
        except OSError as error:
            raise UnavailableError(f"the other side of a relay's task is gone: {error}") from error

    def waits(self, timeout_s: float = 0.0) -> bool:
        """Return whether something has arrived, or arrives within the time: a message, or the end."""
        try:
            return bool(self._connection.poll(timeout_s))
        except OSError:
            return True

    def receive(self) -> Message:
        """Wait for the next message and return it.

        Raises:
            UnavailableError: the other side is gone. InvalidArgumentError: it says what is no message.
        """
        try:
            raw: bytes = self._connection.recv_bytes(MESSAGE_BYTES_MAX)
        except (OSError, EOFError) as error:
            raise UnavailableError(f"the other side of a relay's task is gone: {error or 'it has ended'}") from error
        return decode(raw)

    def end(self) -> None:
        """End the connection for both sides.

        Any thread, also while another one waits for a message.
        """
        with suppress(OSError):  # the other side has ended it
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection, from the thread that uses it."""
        self.end()
        self._socket.close()
        self._connection.close()


class Lines:
    """The driver's side: accepts connections until :meth:`close`.

    ``on_line`` gets each with the task's greeting, in a thread of its own.
    """

    def __init__(self, host: str, bind: str, on_line: Callable[[Channel, Message], None]) -> None:
        self._key = secrets.token_bytes(32)
        self._on_line = on_line
        self._closed = False
        self._greeting = threading.Semaphore(GREETING_MAX)
        # Without its key: the handshake is done in the connection's own thread, where a stranger holds up nobody.
        self._listener = Listener((bind, 0), backlog=64)
        self.address = Address(host, int(self._listener.address[1]), self._key)
        threading.Thread(target=self._accept, name="tarry-relay-lines", daemon=True).start()

    def close(self) -> None:
        self._closed = True
        with suppress(OSError):  # wakes the thread that waits for the next connection
            socket.create_connection(self._listener.address, 1.0).close()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError as error:
                if not self._closed:
                    log.warning("a task could not connect: %s", error)
                continue
            if self._closed:
                connection.close()
                return
            if not self._greeting.acquire(blocking=False):
                log.warning("a connection was cut off: %d others have not shown the key yet", GREETING_MAX)
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), name="tarry-relay-line", daemon=True).start()

    def _serve(self, connection: Connection[Any, Any]) -> None:
        line = Channel(connection)
        try:
            try:
                hello = self._greet(line, connection)
            finally:
                self._greeting.release()
            self._on_line(line, hello)
        except Exception as error:  # noqa: BLE001 - a stranger, or a task that has ended already
            log.warning("a connection of a task has ended: %s", error)
            line.close()

    def _greet(self, line: Channel, connection: Connection[Any, Any]) -> Message:
        # One limit for all of it: a stranger that sends a byte now and then would keep a thread for hours.
        timer = threading.Timer(GREETING_S, line.end)
        timer.daemon = True
        timer.start()
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            return line.receive()
        finally:
            timer.cancel()
