"""Messages of one client on their way to the disk, each answered by PUBACK when it is durable.

Answers are in the order of arrival.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from tarry.api.needs import Right
from tarry.base.errors import TarryError
from tarry.base.log_limiter import LogLimiter
from tarry.fronts.kit.desk import Desk
from tarry.fronts.mqtt.messages import row_of_publish
from tarry.fronts.mqtt.packets import V5, PublishPacket, puback
from tarry.fronts.mqtt.reasons import MqttError, Reason, reason_of
from tarry.fronts.mqtt.topics import target_of
from tarry.identity.principal import Principal
from tarry.message.options import UNMET
from tarry.message.receipt import NO_SEQ, Receipt

_refused = LogLimiter(logging.getLogger(__name__), logging.WARNING)


class Sender:
    """On the event loop's thread. ``on_settled`` gets the size of each message that is done with."""

    def __init__(
        self,
        desk: Desk,
        version: int,
        write: Callable[[bytes], None],
        on_settled: Callable[[int], None],
        on_fault: Callable[[MqttError], None],
        *,
        tells: bool,
    ) -> None:
        """``desk``: as the client sees it. ``tells``: the client wants texts of what is refused."""
        self._desk = desk
        self._version = version
        self._write = write
        self._on_settled = on_settled
        self._on_fault = on_fault
        self._tells = tells
        self._waiting: deque[tuple[int, asyncio.Future[Receipt]]] = deque()
        """Messages of QoS 1 without their PUBACK."""

    def send(self, message: PublishPacket) -> None:
        """Schedule a message.

        Raises:
            MqttError: this front does not have what it asks for.
        """
        if message.qos == 2:
            raise MqttError(Reason.QOS_UNSUPPORTED, "a message of QoS 2; allowed: 0 and 1")
        if message.retain and self._version == V5:
            raise MqttError(Reason.RETAIN_UNSUPPORTED, "a message to retain; allowed: without RETAIN")
        if "topic_alias" in message.properties:
            raise MqttError(Reason.TOPIC_ALIAS_INVALID, "a topic alias; allowed: a topic")
        future: asyncio.Future[Receipt]
        try:
            future = self._desk.schedule_row(row_of_publish(message))
        except (TarryError, MqttError) as error:
            future = self._desk.loop.create_future()
            future.set_exception(error)
        if message.qos:
            self._waiting.append((message.packet_id, future))
        future.add_done_callback(partial(self._on_done, message.qos, len(message.body)))

    def _on_done(self, qos: int, size: int, future: asyncio.Future[Receipt]) -> None:
        self._on_settled(size)
        if not qos and (error := future.exception()) is not None:
            _refused.say("a message of QoS 0 is dropped: %s", error)
        while self._waiting and self._waiting[0][1].done():
            packet_id, done = self._waiting.popleft()
            self._answer(packet_id, done.exception() or _unmet(done.result()))

    def _answer(self, packet_id: int, error: BaseException | None) -> None:
        if error is None:
            self._write(puback(self._version, packet_id))
            return
        reason = reason_of(error) if isinstance(error, TarryError | MqttError) else Reason.UNSPECIFIED
        if self._version != V5 or reason is Reason.UNSPECIFIED:
            # 3.1.1 has no answer to what was not accepted; and without one, the client sends the message again.
            self._on_fault(MqttError(reason, str(error)))
        else:
            self._write(puback(self._version, packet_id, reason, str(error) if self._tells else ""))


def _unmet(receipt: Receipt) -> MqttError | None:
    """Return the refusal of a message whose condition did not hold."""
    if receipt.outcome not in UNMET:
        return None
    pending = f"the message with seq {receipt.seq} is" if receipt.seq != NO_SEQ else "nothing is"
    return MqttError(Reason.NOT_ACCEPTED, f"{receipt.outcome}: {pending} pending under its key; nothing was scheduled")


def check_publish(principal: Principal, message: PublishPacket, peer: str) -> None:
    """Refuse a message for a topic to which a client may not produce.

    Raises:
        ForbiddenError: it may not. MqttError: the topic is none.
    """
    if not principal.rights.is_unlimited:
        principal.check(Right.PRODUCE, target_of(message.topic).topic, peer=peer)
