"""The Python client: ``sync`` and ``aio``, both with the operations of :mod:`tarry.api.calls`.

Producing: ``producing`` sends many callers' messages together · ``bulk`` sends iterables and tables. Consuming:
``consuming`` is a stream on a connection · ``feed`` keeps one · ``delivery`` is what arrives · ``settling`` and
``unanswered`` bring acks back · ``consumer`` and ``received`` are for people. ``carrier`` carries all other operations;
``connection``, on the loop of ``background``, is below all of it.
"""

from tarry.client.aio import AsyncClient
from tarry.client.aio_consumer import AsyncConsumer
from tarry.client.consumer import Consumer
from tarry.client.delivery import Delivery, DeliveryBatch
from tarry.client.sync import Client
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
    "Delivery",
    "DeliveryBatch",
    "Receipt",
    "TopicPending",
]
