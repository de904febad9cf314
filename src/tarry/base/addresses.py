"""Addresses and ports that a broker may connect to for a user's URL.

None inside of its own network are allowed, unless a setting says so: whoever may name a URL could otherwise reach what
only the broker's machine can (SSRF).

An IPv6 address that carries an IPv4 one (mapped, 6to4, Teredo, NAT64) is judged by both.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from tarry.base.errors import InvalidArgumentError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_UNSAFE = (
    ipaddress.ip_network("168.63.129.16/32"),  # Azure's metadata, at an address that looks public
    ipaddress.ip_network("192.0.0.0/24"),  # of protocols; Oracle's metadata
    ipaddress.ip_network("192.88.99.0/24"),  # relays of 6to4
    ipaddress.ip_network("100.64.0.0/10"),  # a provider's own network; Alibaba's metadata
    ipaddress.ip_network("3fff::/20"),  # of documentation, which Python takes for public before 3.14
)
PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Allowed addresses and ports.

    ``networks``: private ones that are allowed; ``ports``: first and last of each allowed range, all if it is empty.
    """

    networks: tuple[Network, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    setting: str = "push"
    """Beginning of the names of the settings that allow more."""

    @classmethod
    def of(cls, private_addresses: str, ports: str, setting: str = "push") -> AddressPolicy:
        """Make the policy of two settings, see :func:`parse_networks` and :func:`parse_ports`."""
        return cls(parse_networks(private_addresses), parse_ports(ports), setting)

    def refusal(self, address: str) -> str | None:
        """Return the reason to refuse a literal address; None: it is allowed."""
        try:
            given = ipaddress.ip_address(address)
        except ValueError:
            return f"{address!r} is no IP address; allowed: a name, or an address as it is usually written"
        for one in (given, *_embedded(given)):
            if not _is_public(one) and not any(one.version == n.version and one in n for n in self.networks):
                return f"{address} is not a public address; allowed by the setting {self.setting}_private_addresses"
        return None

    def port_refusal(self, port: int) -> str | None:
        """Return the reason to refuse a port; None: it is allowed."""
        if not self.ports or any(low <= port <= high for low, high in self.ports):
            return None
        return f"port {port} is not among those that the setting {self.setting}_ports allows"


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse networks: "off" is none, "on" all, else such as ``10.0.0.0/8 fd00::/8 127.0.0.1``.

    Raises:
        InvalidArgumentError: it has something else.
    """
    words = text.replace(",", " ").split()
    if words in ([], ["off"]):
        return ()
    if words == ["on"]:
        words = ["0.0.0.0/0", "::/0"]
    try:
        return tuple(ipaddress.ip_network(word) for word in words)
    except ValueError as error:
        raise InvalidArgumentError(
            f'networks {text!r}: {error}; allowed: "on", "off", or networks such as 10.0.0.0/8 fd00::/8'
        ) from None


def parse_ports(text: str) -> tuple[tuple[int, int], ...]:
    """Ranges of ports of a text such as ``80 443 8000-9000``; none where all are allowed: "all".

    Raises:
        InvalidArgumentError: it has something else.
    """
    ranges = []
    words = text.replace(",", " ").split()
    for word in words if words != ["all"] else ():
        low, dash, high = word.partition("-")
        ends = (low, high if dash else low)
        if not all(end.isascii() and end.isdecimal() for end in ends) or not 1 <= int(low) <= int(ends[1]) <= PORT_MAX:
            raise InvalidArgumentError(
                f"ports {text!r}: {word!r}; allowed: all, or ports and ranges, as in 80 443 8000-9000"
            )
        ranges.append((int(ends[0]), int(ends[1])))
    return tuple(ranges)


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return True  # what it carries is judged
    inside = address.is_private or address.is_loopback or address.is_link_local or address.is_unspecified
    special = address.is_multicast or address.is_reserved or getattr(address, "is_site_local", False)
    if isinstance(address, ipaddress.IPv6Address) and address in _NAT64:
        special = False  # so is this; Python takes the prefix for a reserved one
    unsafe = any(address.version == network.version and address in network for network in _UNSAFE)
    return not (inside or special or unsafe)


def _embedded(address: Address) -> Iterator[Address]:
    if not isinstance(address, ipaddress.IPv6Address):
        return
    for found in (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())):
        if found is not None:
            yield found
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
