"""Addresses of brokers: ``HOST:PORT``, or ``unix:PATH`` on the same machine; and lists of them."""

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
ADDRESSES_MAX = 16
"""Most addresses of a list."""

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


def split_addresses(text: str) -> list[str]:
    """Return the addresses of a list, ``A,B``: each once, in order. They are not parsed.

    A comma in the path of a socket belongs to it, unless an address follows.

    Raises:
        InvalidArgumentError: one is empty, or there are too many.
    """
    if not isinstance(text, str) or "," not in text:
        return [text]
    found: list[str] = []
    for part in text.split(","):
        if found and found[-1].startswith(SOCKET) and not _begins_address(part):
            found[-1] = f"{found[-1]},{part}"
        else:
            found.append(part.strip())
    if "" in found:
        raise InvalidArgumentError(f"addresses {text!r:.300}: one is empty; allowed: A,B, as in a:7611,b:7611")
    several = list(dict.fromkeys(found))
    if len(several) > ADDRESSES_MAX:
        raise InvalidArgumentError(f"addresses {text!r:.300}: {len(several)} of them; allowed: {ADDRESSES_MAX}")
    return several


def are_sockets(addresses: str) -> bool:
    """Return whether the addresses of a list are sockets of this machine, and not HOST:PORT.

    Raises:
        InvalidArgumentError: one is neither; or some are, and some are not.
    """
    kinds = {socket_path(each) is not None for each in split_addresses(addresses)}
    if len(kinds) > 1:
        raise InvalidArgumentError(f"addresses {addresses!r:.300}: some are unix:PATH; allowed: all of them, or none")
    return kinds.pop()


def local_socket(data: Path, name: str) -> str:
    """Return ``unix:PATH`` of a socket in a data directory.

    If that path is too long, return one in the system's directory for temporary files.
    """
    path = data.absolute() / f"{name}.sock"
    if len(os.fsencode(path)) > SOCKET_BYTES_MAX:
        digest = sha256(os.fsencode(path)).hexdigest()[:16]
        path = Path(tempfile.gettempdir()) / f"tarry-{os.getuid()}-{digest}.sock"
    return f"{SOCKET}{path}"


def _begins_address(part: str) -> bool:
    return part.strip().startswith((SOCKET, "tls://")) or _host_port(part) is not None


def _host_port(text: object) -> tuple[str, int] | None:
    match = _ADDRESS.fullmatch(text.strip()) if isinstance(text, str) else None
    return None if match is None or int(match[2]) > 65535 else (match[1], int(match[2]))


def _is_socket_path(path: str) -> bool:
    try:
        return 0 < len(os.fsencode(path)) <= SOCKET_BYTES_MAX and "\0" not in path
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
