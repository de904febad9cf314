"""Tarry: a delayed-message broker, on time to the millisecond, with a Delta table for the far future.

    from tarry import Client
    client = Client("localhost:7611")
    client.schedule("orders", b"unpaid?", delay="30m")
    for message in client.consume("orders", group="billing"):
        message.ack()

In-process: ``tarry.open("directory")``. For tests: ``tarry.testing``. These two need the distribution ``tarry``; the
rest is in ``tarry-client``, too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tarry.base.extras import not_installed
from tarry.base.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from tarry.api.outcome import Outcome
    from tarry.base.delay import DelayLevel
    from tarry.base.errors import TarryError
    from tarry.broker.embedded import AsyncBroker, open
    from tarry.client import AsyncClient, Client, Delivery
    from tarry.link.tls import ClientTls
    from tarry.message.message import Message
    from tarry.repeat import Repeat
    from tarry.worker import BodyError, Reject, Retry, Worker

__all__ = [
    "AsyncBroker",
    "AsyncClient",
    "BodyError",
    "Client",
    "ClientTls",
    "DelayLevel",
    "Delivery",
    "Message",
    "Outcome",
    "Reject",
    "Repeat",
    "Retry",
    "TarryError",
    "Worker",
    "__version__",
    "open",
]

_HOMES = {
    "AsyncBroker": "tarry.broker.embedded",
    "AsyncClient": "tarry.client",
    "BodyError": "tarry.worker",
    "Client": "tarry.client",
    "ClientTls": "tarry.link.tls",
    "DelayLevel": "tarry.base.delay",
    "Delivery": "tarry.client",
    "Message": "tarry.message.schema",
    "Outcome": "tarry.api.outcome",
    "Reject": "tarry.worker",
    "Repeat": "tarry.repeat",
    "Retry": "tarry.worker",
    "TarryError": "tarry.base.errors",
    "Worker": "tarry.worker",
    "open": "tarry.broker.embedded",
}


def __getattr__(name: str) -> Any:
    # Loaded when used: `tarry --help` should not wait for pyarrow.
    if name in _HOMES:
        try:
            return getattr(importlib.import_module(_HOMES[name]), name)
        except ImportError as error:
            raise ImportError(not_installed(f"tarry.{name}", error)) from error
    raise AttributeError(f"module 'tarry' has no attribute {name!r}")
