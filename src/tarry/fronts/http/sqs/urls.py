"""The beginning of queues' URLs: as the client got here, so that it gets here again.

The host is that of the request; a client that writes another one misleads itself alone. ``X-Forwarded-Host`` and
``X-Forwarded-Proto`` are believed of the proxies that the setting ``http_proxies`` names.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import cast

from tarry.base.addresses import Network
from tarry.fronts.http.exchange import HttpRequest
from tarry.fronts.http.server.message import HttpExchange

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[-.0-9A-Za-z_]+)(:[0-9]{1,5})?")


def base_url(http: HttpRequest, proxies: Sequence[Network]) -> str:
    """Return scheme and host of a queue's URL."""
    scope = cast(HttpExchange, http).scope
    headers = dict(http.headers)
    scheme: str = scope["scheme"]
    hosts = [headers.get(b"host", b"")]
    if proxies and _is_within(http.host, proxies):
        hosts.insert(0, headers.get(b"x-forwarded-host", b""))
        shown = _first(headers.get(b"x-forwarded-proto", b""))
        scheme = shown if shown in ("http", "https") else scheme
    for host in map(_first, hosts):
        if _HOST.fullmatch(host):
            return f"{scheme}://{host}"
    address, port = scope["server"]
    return f"{scheme}://[{address}]:{port}" if ":" in address else f"{scheme}://{address}:{port}"


def _first(raw: bytes) -> str:
    """Return the first of several values: that of the proxy that is nearest to the client."""
    return raw.decode("latin-1").partition(",")[0].strip()


def _is_within(host: str, networks: Sequence[Network]) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False  # it comes by a Unix socket
    return any(address in network for network in networks)
