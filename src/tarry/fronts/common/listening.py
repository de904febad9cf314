"""A socket that listens at a host and port, in IPv4 or IPv6."""

from __future__ import annotations

import socket


def listen_on(host: str, port: int, *, backlog: int) -> socket.socket:
    """Listen at a host of :func:`tarry.base.endpoint.parse_address`; port 0 takes a free one.

    Raises:
        OSError: it cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host.strip("[]"), port), family=family, backlog=backlog)
