"""A socket that listens at a host and port, in IPv4 or IPv6; and one that a front's processes share."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SharedPort:
    """The port of a front that has several processes."""

    listening: socket.socket
    """It listens already."""
    connect: Callable[[], Awaitable[None]]
    """Connects to the broker, on the front's loop, before anything is served."""


def listen_on(host: str, port: int, *, backlog: int) -> socket.socket:
    """Listen at a host of :func:`tarry.base.endpoint.parse_address`; port 0 takes a free one.

    Raises:
        OSError: it cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host.strip("[]"), port), family=family, backlog=backlog)
