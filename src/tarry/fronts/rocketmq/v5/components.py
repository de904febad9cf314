"""Construction of the parts of the v5 service."""

from __future__ import annotations

import asyncio

from loopgrpc import UnreadBytes
from tarry.api.local import AnyBroker
from tarry.fronts.rocketmq.common.access_keys import read_keys
from tarry.fronts.rocketmq.common.callers import SigningCallers
from tarry.fronts.rocketmq.common.draft import DraftRules
from tarry.fronts.rocketmq.common.groups import ClientGroups
from tarry.fronts.rocketmq.common.half_messages import HalfMessages
from tarry.fronts.rocketmq.common.send_queue import SendQueue
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry
from tarry.fronts.rocketmq.common.unpacking import Unpacking
from tarry.fronts.rocketmq.settings import RocketMQSettings
from tarry.fronts.rocketmq.v5.authentication import Authenticator
from tarry.fronts.rocketmq.v5.clients import ClientRegistry
from tarry.fronts.rocketmq.v5.offsets import Offsets
from tarry.fronts.rocketmq.v5.peers import Colleagues
from tarry.fronts.rocketmq.v5.recalling import Recaller
from tarry.fronts.rocketmq.v5.receiving import Receiver
from tarry.fronts.rocketmq.v5.routes import ListeningAddress, Routes
from tarry.fronts.rocketmq.v5.sending import Sender
from tarry.fronts.rocketmq.v5.service import Service
from tarry.fronts.rocketmq.v5.settling import Settler
from tarry.fronts.rocketmq.v5.telemetry import Telemetry
from tarry.fronts.rocketmq.v5.transaction_checks import check_transactions
from tarry.fronts.rocketmq.v5.transactions import Transactions


class Components:
    """All parts of the v5 service, which answer until :meth:`close`. On the event loop's thread.

    :attr:`service` answers the calls.
    """

    def __init__(
        self,
        broker: AnyBroker,
        loop: asyncio.AbstractEventLoop,
        run_in_thread: RunInThread,
        address: ListeningAddress,
        unread: UnreadBytes,
    ) -> None:
        config, clock, host = broker.config, broker.clock, address.host
        self._colleagues = Colleagues(broker, loop)
        self._clients = ClientRegistry(loop, self._colleagues)
        self._callers = callers = SigningCallers(broker, loop, read_keys(RocketMQSettings.of(config).rocketmq_keys))
        self.groups = ClientGroups(broker, loop, run_in_thread)
        settings = RocketMQSettings.of(config)
        topics = TopicRegistry(broker, run_in_thread, create=settings.rocketmq_create_topics == "on")
        half_messages = HalfMessages(broker)
        self._transaction_checks = check_transactions(broker, loop, self._clients, self._colleagues, host)
        telemetry = Telemetry(self._clients, self.groups, callers, body_bytes_max=config.body_bytes_max)
        routes = Routes(settings.rocketmq_broker, broker, topics, run_in_thread, address)
        send_queue = SendQueue(broker, loop, half_messages)
        unpacking = Unpacking(config.body_bytes_max, run_in_thread)
        sender = Sender(clock, loop, DraftRules.of(config), topics, send_queue, unpacking)
        receiver = Receiver(clock, loop, self.groups, topics, self._clients, callers, host, unread)
        settler = Settler(broker, loop)
        offsets = Offsets(broker, loop, self.groups, topics, callers, run_in_thread, host)
        self.service = Service(
            Authenticator(callers, clock),
            message_methods={
                "QueryRoute": routes.route,
                "QueryAssignment": routes.assignment,
                "Heartbeat": telemetry.heartbeat,
                "NotifyClientTermination": telemetry.goodbye,
                "ChangeInvisibleDuration": settler.change,
                "ForwardMessageToDeadLetterQueue": settler.reject,
                "EndTransaction": Transactions(half_messages, run_in_thread).end,
                "RecallMessage": Recaller(broker, run_in_thread).recall,
                "UpdateOffset": offsets.update,
                "GetOffset": offsets.get,
                "QueryOffset": offsets.query,
            },
            bytes_methods={
                "SendMessage": lambda caller, request, call: sender.send(caller, request, call.peer),
                "AckMessage": lambda caller, request, _: settler.ack(caller, request),
            },
            promise_methods={"ReceiveMessage": receiver.receive},
            stream_methods={"PullMessage": offsets.pull},
            telemetry=telemetry.stream,
        )

    @property
    def clients(self) -> int:
        """Number of known clients. Any thread."""
        return len(self._clients)

    def close(self) -> None:
        """End everything that waits: receives, telemetry streams, questions about transactions."""
        self._transaction_checks.close()
        self.groups.close()
        self._clients.close()
        self._callers.close()
        self._colleagues.close()
