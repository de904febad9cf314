"""The conversation with one client, from CONNECT to the end of its connection."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from tarry.api.needs import Right
from tarry.api.settings import LATEST
from tarry.base.errors import TarryError
from tarry.fronts.kit.desk import Desk
from tarry.fronts.mqtt import packets
from tarry.fronts.mqtt.authentication import Authentication
from tarry.fronts.mqtt.connection import MqttConnection
from tarry.fronts.mqtt.messages import later, row_of_publish
from tarry.fronts.mqtt.packets import (
    V5,
    AckPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PublishPacket,
    RequestedFilter,
    SubscribePacket,
    UnsubscribePacket,
)
from tarry.fronts.mqtt.reasons import MqttError, Reason, reason_of
from tarry.fronts.mqtt.receiving import MqttReceiver
from tarry.fronts.mqtt.sending import Sender, check_publish
from tarry.fronts.mqtt.sessions import Session, Sessions
from tarry.fronts.mqtt.settings import MqttSettings
from tarry.fronts.mqtt.settling import Settling
from tarry.fronts.mqtt.topics import source_of
from tarry.fronts.mqtt.wire import VARINT_MAX, Properties
from tarry.identity.principal import LOCAL
from tarry.message.rows import Row

SUBSCRIPTIONS_MAX = 1_000
TEXTS_FROM_BYTES = 4 << 10
"""Largest packet of clients that are told reasons as codes alone."""
OFFERED: Properties = {"qos_max": 1, "retain_available": 0, "wildcards_available": 0}
"""Limits of this front, of which a CONNACK tells clients of MQTT 5."""


@dataclass(frozen=True, slots=True)
class MqttServices:
    """The parts that all conversations share."""

    desk: Desk
    settling: Settling
    sessions: Sessions
    authentication: Authentication
    settings: MqttSettings
    packet_bytes_max: int


class MqttConversation:
    """On the event loop's thread."""

    version: int | None = None

    def __init__(self, services: MqttServices, connection: MqttConnection) -> None:
        self._services = services
        self._connection = connection
        self._session: Session | None = None
        """None before the client is connected, and after its end."""
        self._sender: Sender
        self._receiver: MqttReceiver
        self._keep_alive_s = 0
        self._will: tuple[Row, int] | None = None
        """The will, and its delay in seconds."""
        self._is_draining = self._tells = False
        self._principal = LOCAL
        """The client, once it has shown who it is."""

    # -- called by the connection --------------------------------------------------------------------------------------

    def on_packet(self, packet: Packet) -> None:
        """Take a packet; the first is CONNECT."""
        match packet:
            case PublishPacket():
                self._connection.opened(len(packet.body))
                self._sender.send(packet)
            case AckPacket():
                self._receiver.on_ack(packet)
            case ConnectPacket():
                self.version = packet.version
                self._connection.run(self._connect(packet))
            case SubscribePacket():
                self._connection.run(self._subscribe(packet))
            case UnsubscribePacket():
                self._connection.run(self._unsubscribe(packet))
            case DisconnectPacket():
                self._disconnect(packet)
            case _:
                self._connection.write(packets.PINGRESP)

    def on_look(self, idle_s: float) -> None:
        """Do what is done each second; ``idle_s`` have passed since the client has sent something."""
        if self._session is None:
            return
        self._receiver.renew()
        if self._keep_alive_s and idle_s > 1.5 * self._keep_alive_s:
            self.end(Reason.KEEP_ALIVE_TIMEOUT, f"nothing came for {idle_s:.0f} s")
        elif self._is_draining:
            self.on_drain()

    def on_writable(self) -> None:
        """Go on sending."""
        if self._session is not None:
            self._receiver.plan()

    def on_fault(self, error: MqttError) -> None:
        """End the connection because of a packet."""
        if self._connection.closed:
            return
        if self.version is None:
            known = error.reason is Reason.UNSUPPORTED_VERSION
            self._connection.close(str(error), packets.connack(packets.V3, error.reason) if known else b"")
        else:
            self.end(error.reason, str(error))

    def on_drain(self) -> None:
        """End the connection when all that was published is answered, without the will."""
        self._will, self._is_draining = None, True
        if not self._connection.has_open:
            self.end(Reason.SHUTTING_DOWN, "the broker stops")

    def on_lost(self) -> None:
        """Leave the session."""
        self._services.authentication.callers.remove(self)
        self._leave()

    def end(self, reason: Reason, text: str) -> None:
        """End the connection; see :class:`tarry.fronts.mqtt.sessions.Connected`."""
        self._leave()
        self._connection.close(text, packets.disconnect(reason, text) if self.version == V5 else b"")

    def _on_gone(self, error: TarryError) -> None:
        """End the connection of a client that is known no longer, without the will that it may not publish."""
        self._will = None
        self.end(Reason.NOT_AUTHORIZED, str(error))

    # -- connect and disconnect ----------------------------------------------------------------------------------------

    async def _connect(self, connect: ConnectPacket) -> None:
        services, version = self._services, connect.version
        try:
            connection = self._connection
            self._principal = services.authentication.identify(connect, connection.host, connection.admission.principal)
            services.authentication.callers.add(self, self._principal, self._on_gone, counts=True)
            if connect.will is not None:
                check_publish(self._principal, connect.will, connection.host)
                self._will = self._will_of(connect.will, version)
            client_id = connect.client_id or secrets.token_hex(12)
            if not connect.client_id and version != V5 and not connect.clean:
                raise MqttError(Reason.CLIENT_ID_INVALID, "no client id of a session that is to be kept")
            forever_s = 0 if version == V5 or connect.clean else float("inf")
            expiry_s = connect.properties.get("session_expiry_s", forever_s)
            session, present = await services.sessions.open(
                client_id, self, self._principal, expiry_s, clean=connect.clean
            )
        except (MqttError, TarryError) as error:
            self._will = None
            answer = packets.connack(version, reason_of(error), {"reason": str(error)[:1000]})
            self._connection.close(str(error), answer)
            return
        self._begin(connect, session)
        await self._cancel_will(session)
        offered = {**OFFERED, "packet_bytes_max": services.packet_bytes_max}
        if not connect.client_id:
            offered["assigned_client_id"] = client_id
        if session.expiry_s != expiry_s:
            offered["session_expiry_s"] = int(session.expiry_s)
        self._connection.write(packets.connack(version, Reason.SUCCESS, offered, present=present))
        for subscription, number in list(session.subscriptions.values()):
            await self._subscribe_to(session, subscription, number)

    def _begin(self, connect: ConnectPacket, session: Session) -> None:
        services, connection, version = self._services, self._connection, connect.version
        connection.admission.begun()
        self._session, self._keep_alive_s = session, connect.keep_alive_s
        packet_bytes_max = connect.properties.get("packet_bytes_max", VARINT_MAX)
        # A reason must not make a packet too large.
        self._tells = (
            packet_bytes_max > TEXTS_FROM_BYTES and connect.properties.get("request_problem_information", 1) > 0
        )
        desk = services.desk.seen_by(self._principal)
        self._sender = Sender(
            desk,
            version,
            connection.write,
            connection.settled,
            self.on_fault,
            tells=self._tells,
        )
        self._receiver = MqttReceiver(
            desk,
            services.settling,
            connection,
            lambda: self.end(Reason.ADMINISTRATIVE, "a group of the client was deleted"),
            version=version,
            inflight_max=min(services.settings.mqtt_inflight_max, connect.properties.get("receive_max", 65_535)),
            packet_bytes_max=packet_bytes_max,
        )

    def _will_of(self, will: PublishPacket, version: int) -> tuple[Row, int]:
        if version == V5 and (will.retain or will.qos == 2):
            reason = Reason.RETAIN_UNSUPPORTED if will.retain else Reason.QOS_UNSUPPORTED
            raise MqttError(reason, "a will of QoS 2 or to retain; allowed: QoS 0 and 1, without RETAIN")
        return row_of_publish(will), will.properties.get("will_delay_s", 0)

    async def _cancel_will(self, session: Session) -> None:
        """Cancel the will of the session's last connection, which its delay has held back."""
        will, session.will = session.will, None
        if will is not None:
            try:
                await self._services.desk.cancel((await will).handle)
            except TarryError:
                return  # it was not accepted, or cannot be cancelled now: then it comes

    def _disconnect(self, packet: DisconnectPacket) -> None:
        session = self._session
        assert session is not None
        expiry_s = packet.properties.get("session_expiry_s", session.expiry_s)
        if expiry_s and not session.expiry_s:
            raise MqttError(Reason.PROTOCOL_ERROR, "a session that was not to be kept is to be kept")
        session.expiry_s = min(expiry_s, self._services.settings.mqtt_session_ms_max / 1000)
        if packet.reason == Reason.SUCCESS:
            self._will = None
        self._leave()
        self._connection.close()

    def _leave(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        self._receiver.close()
        if self._will is not None:
            row, delay_s = self._will
            delay_s = min(delay_s, int(session.expiry_s))
            try:
                will = self._services.desk.schedule_row(later(row, delay_s * 1000) if delay_s else row)
                will.add_done_callback(lambda done: done.exception())
                session.will = will if delay_s else None
            except TarryError:
                pass  # the broker stops
        self._services.sessions.leave(session)

    # -- subscriptions -------------------------------------------------------------------------------------------------

    async def _subscribe(self, packet: SubscribePacket) -> None:
        texts: list[str] = []
        reasons: list[int] = []
        for subscription in packet.subscriptions:
            if self._session is not None:
                number = packet.properties.get("subscription_id")
                reason, text = await self._subscribe_to(self._session, subscription, number)
                reasons.append(reason)
                texts += [text] if text else []
        text = "; ".join(texts) if self._tells else ""
        self._connection.write(packets.suback(self.version or V5, packet.packet_id, reasons, text))

    async def _subscribe_to(
        self, session: Session, subscription: RequestedFilter, number: int | None
    ) -> tuple[int, str]:
        """Return the QoS that is granted; or the reason why not, and in words."""
        filter, qos = subscription.filter, min(subscription.qos, 1)
        try:
            source = source_of(filter)
            if subscription.no_local:
                raise MqttError(Reason.NOT_ACCEPTED, f"filter {filter!r:.80} with No Local; allowed: without it")
            if len(session.subscriptions) >= SUBSCRIPTIONS_MAX and filter not in session.subscriptions:
                raise MqttError(Reason.QUOTA_EXCEEDED, f"more subscriptions than {SUBSCRIPTIONS_MAX}")
            group = source.group or session.group
            self._principal.check(Right.CONSUME, source.topic, group, peer=self._connection.host)
            if source.group is None:
                session.topics.add(source.topic)
            # What was published before is not for a new subscription.
            queue = await self._services.desk.receive_queue(source.topic, group, start=LATEST)
        except (MqttError, TarryError) as error:
            session.subscriptions.pop(filter, None)
            return reason_of(error), str(error)
        session.subscriptions[filter] = subscription, number
        topic = filter if source.group is None else filter.split("/", 2)[2]
        self._receiver.add(filter, topic, queue, qos, {} if number is None else {"subscription_id": number})
        return qos, ""

    async def _unsubscribe(self, packet: UnsubscribePacket) -> None:
        session, reasons = self._session, []
        for filter in packet.filters if session is not None else ():
            assert session is not None
            known = session.subscriptions.pop(filter, None)
            reasons.append(Reason.NO_SUBSCRIPTION if known is None else Reason.SUCCESS)
            self._receiver.remove(filter)
            if known is not None and (source := source_of(filter)).group is None:
                session.topics.discard(source.topic)
                await self._services.desk.forget_queue(source.topic, session.group)
        self._connection.write(packets.unsuback(self.version or V5, packet.packet_id, reasons))
