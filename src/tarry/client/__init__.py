"""The Python client. ``sync`` and ``aio`` are what people use.

Producing: ``rows`` checks messages and makes columns of them · ``producing`` sends many callers' messages together ·
``bulk`` sends tables · ``answers`` come back. Consuming: ``feed`` keeps the stream · ``delivery`` is what arrives ·
``settling`` brings acks back · ``consumer`` and ``received`` are for people. ``connection`` is below all of it.
"""

from tarry.client.aio import AsyncClient, AsyncConsumer
from tarry.client.answers import Accepted, Receipt, TopicPending
from tarry.client.consumer import Consumer
from tarry.client.delivery import Delivery, DeliveryBatch
from tarry.client.sync import Client

__all__ = [
    "Accepted",
    "AsyncClient",
    "AsyncConsumer",
    "Client",
    "Consumer",
    "Delivery",
    "DeliveryBatch",
    "Receipt",
    "TopicPending",
]
