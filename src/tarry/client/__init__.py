"""The Python client: ``sync`` and ``aio``, both with the operations of :mod:`tarry.api.calls`.

Producing: ``producing`` sends many callers' messages together · ``bulk`` sends iterables and tables. Consuming:
``consuming`` is a stream on a connection · ``feed`` keeps one · ``delivery`` is what arrives · ``settling`` and
``unanswered`` bring acks back · ``consumer`` and ``received`` are for people. ``carrier`` carries all other operations;
``connection``, on the loop of ``background``, is below all of it. That is the ``native`` way to a broker;
``http`` is the other, and ``sync`` chooses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tarry.client.aio import AsyncClient
    from tarry.client.aio_consumer import AsyncConsumer
    from tarry.client.consumer import Consumer
    from tarry.client.delivery import Delivery
    from tarry.client.delivery_batch import DeliveryBatch
    from tarry.client.sync import Client
    from tarry.client.way import Consumes
    from tarry.link.tls import ClientTls
    from tarry.message.accepted import Accepted
    from tarry.message.receipt import Receipt, TopicPending

__all__ = [
    "Accepted",
    "AsyncClient",
    "AsyncConsumer",
    "Client",
    "ClientTls",
    "Consumer",
    "Consumes",
    "Delivery",
    "DeliveryBatch",
    "Receipt",
    "TopicPending",
]

_HOMES = {
    "Accepted": "tarry.message.accepted",
    "AsyncClient": "tarry.client.aio",
    "AsyncConsumer": "tarry.client.aio_consumer",
    "Client": "tarry.client.sync",
    "ClientTls": "tarry.link.tls",
    "Consumer": "tarry.client.consumer",
    "Consumes": "tarry.client.way",
    "Delivery": "tarry.client.delivery",
    "DeliveryBatch": "tarry.client.delivery_batch",
    "Receipt": "tarry.message.receipt",
    "TopicPending": "tarry.message.receipt",
}


def __getattr__(name: str) -> Any:
    # Loaded when used: some of it needs pyarrow, which a client that speaks HTTP has not got.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tarry.client' has no attribute {name!r}")
