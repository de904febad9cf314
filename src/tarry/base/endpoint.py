"""Addresses of brokers: ``HOST:PORT``, or ``unix:PATH`` on the same machine."""

from __future__ import annotations

import os
import re
import tempfile
from hashlib import sha256
from pathlib import Path

from tarry.base.errors import InvalidArgumentError

SOCKET = "unix:"
"""Before the path of a socket, in an address."""
SOCKET_BYTES_MAX = 100
"""Systems take paths of about 108 bytes."""

_HOST_PORT = "HOST:PORT, as in 127.0.0.1:7611 or [::1]:7611"
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; an IPv6 host stands in brackets. Port 0 is any free one.

    Raises:
        InvalidArgumentError: for anything else.
    """
    host_port = _host_port(text)
    if host_port is None:
        raise InvalidArgumentError(f"address {text!r}; allowed: {_HOST_PORT}")
    return host_port


def socket_path(address: str) -> str | None:
    """Return the path of ``unix:PATH``, which only this machine reaches; None for HOST:PORT.

    Raises:
        InvalidArgumentError: it is neither.
    """
    if _host_port(address) is not None:
        return None
    path = address.removeprefix(SOCKET) if isinstance(address, str) and address.startswith(SOCKET) else ""
    if not _is_socket_path(path):
        raise InvalidArgumentError(
            f"address {address!r}; allowed: {_HOST_PORT}, or unix:PATH with a path of up to {SOCKET_BYTES_MAX} bytes"
        )
    return path


def local_socket(data: Path, name: str) -> str:
    """Return ``unix:PATH`` of a socket in a data directory.

    If that path is too long, return one in the system's directory for temporary files.
    """
    path = data.absolute() / f"{name}.sock"
    if len(os.fsencode(path)) > SOCKET_BYTES_MAX:
        digest = sha256(os.fsencode(path)).hexdigest()[:16]
        path = Path(tempfile.gettempdir()) / f"tarry-{os.getuid()}-{digest}.sock"
    return f"{SOCKET}{path}"


def _host_port(text: object) -> tuple[str, int] | None:
    match = _ADDRESS.fullmatch(text.strip()) if isinstance(text, str) else None
    return None if match is None or int(match[2]) > 65535 else (match[1], int(match[2]))


def _is_socket_path(path: str) -> bool:
    try:
        return 0 < len(os.fsencode(path)) <= SOCKET_BYTES_MAX and "\0" not in path
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
