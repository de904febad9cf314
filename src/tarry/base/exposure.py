"""Ports without authentication that other machines may reach: none, unless a setting names them.

A name counts as this machine's own where all of its addresses are loopback. That is asked when the port is about to be
opened, so a name that points elsewhere later changes nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping

from tarry.base.endpoint import parse_address, socket_path
from tarry.base.errors import InvalidArgumentError

FLIGHT, LINK = "flight", "link"
LISTENERS = (FLIGHT, LINK)
"""Names of settings: the ports that have no authentication."""


def parse_listeners(text: str) -> frozenset[str]:
    """Parse the ports that a setting names, as in "flight link"; "" is none.

    Raises:
        InvalidArgumentError: there is no such port, or it asks who comes.
    """
    names = frozenset(text.replace(",", " ").split())
    for name in sorted(names.difference(LISTENERS)):
        raise InvalidArgumentError(f"listener {name!r}; allowed: {', '.join(LISTENERS)}")
    return names


def is_number(host: str) -> bool:
    """Return whether a host is written as an IP address, and not as a name."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Return whether a host, as written, is this machine: ``localhost``, or a loopback address."""
    if name.lower() == "localhost" or name.lower().endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def is_exposed(address: str) -> bool:
    """Return whether other machines could reach a port at ``HOST:PORT``; one at ``unix:PATH`` they cannot.

    Raises:
        InvalidArgumentError: no address.
    """
    if socket_path(address) is not None:
        return False
    host, port = parse_address(address)
    bare = host.strip("[]")
    try:
        ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        pass
    else:
        return not is_loopback(bare)
    try:
        found = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return not is_loopback(bare)  # it cannot be listened on; that is said when it is tried
    return not all(is_loopback(str(place[0]).partition("%")[0]) for *_, place in found)


def check_exposure(listener: str, address: str, insecure: str) -> bool:
    """Return whether a port without authentication is opened to other machines. ``insecure``: the setting.

    Raises:
        InvalidArgumentError: it is, and the setting does not name it.
    """
    if not is_exposed(address):
        return False
    if listener not in parse_listeners(insecure):
        port = parse_address(address)[1]
        raise InvalidArgumentError(
            f"{listener} is {address!r}, which other machines reach, and this port asks nobody who they are: whoever "
            "connects may read, change and delete everything; allowed: an address of this machine alone, as "
            f"127.0.0.1:{port}; or an identity, so that it asks (tarry identity create admin --all --data DIR); or, "
            f"where all that reach it are trusted, the setting insecure_open={listener}"
        )
    return True


def exposed(addresses: Mapping[str, str | None]) -> dict[str, str]:
    """Return the ports without authentication that other machines reach: names and addresses."""
    given = {name: address for name in LISTENERS if (address := addresses.get(name)) is not None}
    return {name: address for name, address in given.items() if is_exposed(address)}
