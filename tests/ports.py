"""Free ports, where a test cannot let the system choose."""

from __future__ import annotations

import socket


def pair_of_ports() -> int:
    """A port that is free, as is the one below it by 2; as far as one can know."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                other.bind(("127.0.0.1", port - 2))
            except OSError:
                continue
            return port


def free_port() -> int:
    """A port that is free, as far as one can know."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
