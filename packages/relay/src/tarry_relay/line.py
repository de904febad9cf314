"""The connection between the driver and a long task: plans and orders one way, results the other.

It uses Python's own connections, with their handshake by a key that only the tasks of this driver's jobs get. A task
connects to the driver, as Spark's executors do. When one side ends, the other finds out at its next poll: a task then
ends, too.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

from tarry.base.errors import UnavailableError
from tarry_relay.clients import bounded

log = logging.getLogger(__name__)

CONNECT_S = 15.0
GREETING_S = 15
"""Seconds for a new connection to show the key."""


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
    def connect(cls, address: Address, hello: Any) -> Channel:
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

    def send(self, message: Any) -> None:
        """Send any object that can be pickled.

        Raises:
            UnavailableError: the other side is gone.
        """
        try:
            self._connection.send(message)
        except OSError as error:
            raise UnavailableError(f"the other side of a relay's task is gone: {error}") from error

    def waits(self, timeout_s: float = 0.0) -> bool:
        """Return whether something has arrived, or arrives within the time: a message, or the end."""
        try:
            return bool(self._connection.poll(timeout_s))
        except OSError:
            return True

    def receive(self) -> Any:
        """Wait for the next message and return it.

        Raises:
            UnavailableError: the other side is gone.
        """
        try:
            return self._connection.recv()
        except (OSError, EOFError) as error:
            raise UnavailableError(f"the other side of a relay's task is gone: {error or 'it has ended'}") from error

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

    def __init__(self, host: str, bind: str, on_line: Callable[[Channel, Any], None]) -> None:
        self._key = secrets.token_bytes(32)
        self._on_line = on_line
        self._closed = False
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
            threading.Thread(target=self._greet, args=(connection,), name="tarry-relay-line", daemon=True).start()

    def _greet(self, connection: Connection[Any, Any]) -> None:
        try:
            _wait_at_most(
                connection, GREETING_S
            )  # otherwise a stranger that sends nothing would keep a thread for ever
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            line = Channel(connection)
            hello = line.receive()
            _wait_at_most(connection, 0)
            self._on_line(line, hello)
        except Exception as error:  # noqa: BLE001 - a stranger, or a task that has ended already
            log.warning("a connection of a task has ended: %s", error)
            connection.close()


def _wait_at_most(connection: Connection[Any, Any], seconds: int) -> None:
    """Set how long each read of a connection waits for a byte; 0: for ever."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))
