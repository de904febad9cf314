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

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; an IPv6 host stands in brackets. Port 0 is any free one.

    Raises:
        InvalidArgumentError: for anything else.
    """
    match = _ADDRESS.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or int(match[2]) > 65535:
        raise InvalidArgumentError(f"address {text!r}; allowed: HOST:PORT, as in 127.0.0.1:7611 or [::1]:7611")
    return match[1], int(match[2])


def socket_path(address: str) -> str | None:
    """Return the path of ``unix:PATH``, which only this machine reaches; None for HOST:PORT.

    Raises:
        InvalidArgumentError: it is neither.
    """
    if not isinstance(address, str) or not address.startswith(SOCKET):
        try:
            parse_address(address)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{error}; or unix:PATH") from None
        return None
    path = address.removeprefix(SOCKET)
    if not path or len(os.fsencode(path)) > SOCKET_BYTES_MAX:
        raise InvalidArgumentError(
            f"address {address!r}; allowed: HOST:PORT, or unix:PATH with a path of up to {SOCKET_BYTES_MAX} bytes"
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
