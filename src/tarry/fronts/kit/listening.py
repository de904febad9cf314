"""Listening sockets, and the port that all processes of one front share."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tarry.base.endpoint import socket_path


@dataclass(frozen=True, slots=True)
class SharedPort:
    """The listening port of a front that runs in several processes."""

    listening: socket.socket
    """A socket that listens already."""
    connect: Callable[[], Awaitable[None]]
    """Connects to the broker. Awaited on the front's loop before anything is served."""


def port_of(address: str) -> int:
    """Return the port of ``HOST:PORT``; 0 for ``unix:PATH``."""
    return 0 if socket_path(address) is not None else int(address.rpartition(":")[2])


def why_not_listening(error: OSError) -> str:
    """Return why an address could not be listened on, in the system's words."""
    return str(error.strerror or error).partition(" (while attempting")[0]  # which names the address again


def listen_on(host: str, port: int, *, backlog: int) -> socket.socket:
    """Listen on a host as ``parse_address`` returns it; port 0 takes a free port.

    Raises:
        OSError: the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host.strip("[]"), port), family=family, backlog=backlog)


def listen_at(path: str, *, backlog: int) -> socket.socket:
    """Listen on a Unix socket that only this user can connect to.

    A socket that an ended process has left there is replaced.

    Raises:
        OSError: the path cannot be listened on.
    """
    Path(path).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(path)
        listening.listen(backlog)
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(before)
    return listening
