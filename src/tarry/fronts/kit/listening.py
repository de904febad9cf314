"""Listening sockets, in IPv4 or IPv6, and the port that all processes of one front share."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SharedPort:
    """The listening port of a front that runs in several processes."""

    listening: socket.socket
    """A socket that listens already."""
    connect: Callable[[], Awaitable[None]]
    """Connects to the broker. Awaited on the front's loop before anything is served."""


def listen_on(host: str, port: int, *, backlog: int) -> socket.socket:
    """Listen on a host as :func:`tarry.base.endpoint.parse_address` returns it; port 0 takes a free port.

    Raises:
        OSError: the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host.strip("[]"), port), family=family, backlog=backlog)
