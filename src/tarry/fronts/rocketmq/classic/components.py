"""Construction of the parts of the classic service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loopgrpc import ByteBudget, UnreadBytes
from tarry.api.local import LocalBroker
from tarry.api.operations import GetTopic
from tarry.base.config import Config
from tarry.fronts.kit.admission import Admission
from tarry.fronts.rocketmq.classic.admin import TopicAdmin
from tarry.fronts.rocketmq.classic.admin_clients import ClientAdmin
from tarry.fronts.rocketmq.classic.admin_groups import GroupAdmin
from tarry.fronts.rocketmq.classic.assigning import Assigner, RequestModes
from tarry.fronts.rocketmq.classic.clients import ClientRegistry
from tarry.fronts.rocketmq.classic.codes import RequestCode
from tarry.fronts.rocketmq.classic.connection import Passage, RemotingConnection
from tarry.fronts.rocketmq.classic.consume_stats import ConsumeStats
from tarry.fronts.rocketmq.classic.dead_queues import DeadQueues
from tarry.fronts.rocketmq.classic.filters import GroupFilters
from tarry.fronts.rocketmq.classic.giving_up import DeadLetterWriter
from tarry.fronts.rocketmq.classic.locks import QueueLocks
from tarry.fronts.rocketmq.classic.lookup import Lookup
from tarry.fronts.rocketmq.classic.lost_answers import LostAnswers
from tarry.fronts.rocketmq.classic.message_bytes import PROPERTIES_BYTES_MAX
from tarry.fronts.rocketmq.classic.offsets import Offsets
from tarry.fronts.rocketmq.classic.positions import Positions
from tarry.fronts.rocketmq.classic.pulling import Puller
from tarry.fronts.rocketmq.classic.queue_lag import QueueLag
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.classic.recalling import Recaller
from tarry.fronts.rocketmq.classic.receiving import Popper
from tarry.fronts.rocketmq.classic.replying import Replier
from tarry.fronts.rocketmq.classic.retrying import Retrier
from tarry.fronts.rocketmq.classic.routes import Routes
from tarry.fronts.rocketmq.classic.sending import Sender
from tarry.fronts.rocketmq.classic.service import Service
from tarry.fronts.rocketmq.classic.settling import PopSettler
from tarry.fronts.rocketmq.classic.transactions import Transactions, check_transactions
from tarry.fronts.rocketmq.common.access_keys import read_keys
from tarry.fronts.rocketmq.common.broker_names import BrokerNames
from tarry.fronts.rocketmq.common.callers import SigningCallers
from tarry.fronts.rocketmq.common.draft import DraftRules
from tarry.fronts.rocketmq.common.groups import ClientGroups
from tarry.fronts.rocketmq.common.half_messages import HalfMessages
from tarry.fronts.rocketmq.common.send_queue import SendQueue
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry
from tarry.fronts.rocketmq.settings import RocketMQSettings

FRAME_BYTES_MIN = 16 << 20
"""Longest frame that is accepted, if bodies may not be longer: RocketMQ's ``frameMaxLength``."""
FRAME_BYTES_SPARE = 1 << 20
"""Room in a frame beside the largest body."""

RECEIVED_BYTES_MAX = 256 << 20
"""Limit of incomplete requests of all connections; one address may have half of it."""


def connections_of(
    config: Config,
    service: Service,
    unread: UnreadBytes,
    on_closed: Callable[[RemotingConnection], None],
    new_passage: Callable[[RemotingConnection], Passage] | None = None,
) -> Callable[[Admission], RemotingConnection]:
    """Return what makes the connection of a client that has connected, for a door.

    ``on_closed`` and ``new_passage``: see :class:`RemotingConnection`.
    """
    frame_bytes_max = max(FRAME_BYTES_MIN, config.body_bytes_max + FRAME_BYTES_SPARE)
    received = ByteBudget("requests that are not whole", RECEIVED_BYTES_MAX)

    def forget(connection: RemotingConnection) -> None:
        service.forget(connection)
        on_closed(connection)

    return lambda admission: RemotingConnection(
        admission, frame_bytes_max, service.serve, forget, received, unread, service.names_key, new_passage
    )


class Components:
    """All parts of the classic service, until :meth:`close`. On the event loop's thread."""

    def __init__(
        self,
        broker: LocalBroker,
        loop: asyncio.AbstractEventLoop,
        run_in_thread: RunInThread,
        unread: UnreadBytes,
    ) -> None:
        config, names = broker.config, BrokerNames.of(broker.config)
        self._groups = ClientGroups(broker, loop, run_in_thread)
        self._callers = SigningCallers(broker, loop, read_keys(RocketMQSettings.of(config).rocketmq_keys))
        self._clients = clients = ClientRegistry(loop, self._groups)
        settings = RocketMQSettings.of(config)
        topics = TopicRegistry(broker, run_in_thread, create=settings.rocketmq_create_topics == "on")
        half_messages = HalfMessages(broker)
        self._checks = check_transactions(broker, loop, clients)
        rules, send_queue = DraftRules.of(config, PROPERTIES_BYTES_MAX), SendQueue(broker, loop, half_messages)
        dead_queues = DeadQueues(broker)
        queues = TopicQueues(settings.remoting_queues, dead_queues.topics, lambda t: broker.call(GetTopic(t)).queues)
        positions = Positions(broker, queues)
        dead_letters = DeadLetterWriter(broker, positions, run_in_thread)
        self._lost_answers = lost_answers = LostAnswers(broker, loop, config.dedupe_ms / 1000)
        sender = Sender(broker, names, rules, topics, queues, send_queue, lost_answers, dead_letters, run_in_thread)
        retrier = Retrier(broker, rules, send_queue, dead_letters, dead_queues, run_in_thread)
        replier = Replier(broker.clock, clients, rules)
        self._offsets = offsets = Offsets(broker, loop, topics, queues, positions, run_in_thread)
        filters = GroupFilters(broker, clients, dead_queues, run_in_thread)
        self._puller = puller = Puller(
            broker, loop, self._groups, topics, queues, filters, offsets, dead_queues, run_in_thread
        )
        popper = Popper(names.broker, broker, loop, self._groups, topics, queues, filters, run_in_thread)
        pop_settler = PopSettler(broker, loop, clients)
        modes = RequestModes(broker.front_state("request-modes"))
        assigner = Assigner(names.broker, clients, topics, queues, positions, modes, run_in_thread)
        locks, lookup = QueueLocks(loop), Lookup(broker, queues, dead_queues, run_in_thread)
        group_admin = GroupAdmin(names.broker, broker, clients, queues, dead_queues, offsets, positions, run_in_thread)
        stats = ConsumeStats(
            names.broker, broker, queues, dead_queues, positions, QueueLag(broker, queues), run_in_thread
        )
        topic_admin = TopicAdmin(names, broker, queues, dead_queues, group_admin.forget, run_in_thread)
        reading = dead_queues.reading
        routes = Routes(config, names, topics, queues, dead_queues, run_in_thread)
        service = Service(
            self._callers,
            {
                RequestCode.SEND_MESSAGE: sender.send,
                RequestCode.SEND_MESSAGE_V2: sender.send,
                RequestCode.SEND_BATCH_MESSAGE: sender.send,
                RequestCode.SEND_REPLY_MESSAGE: replier.reply,
                RequestCode.SEND_REPLY_MESSAGE_V2: replier.reply,
                RequestCode.RECALL_MESSAGE: Recaller(broker, run_in_thread).recall,
                RequestCode.PULL_MESSAGE: reading(puller.pull),
                RequestCode.LITE_PULL_MESSAGE: reading(puller.pull),
                RequestCode.POP_MESSAGE: reading(popper.pop),
                RequestCode.NOTIFICATION: reading(popper.notify),
                RequestCode.ACK_MESSAGE: pop_settler.ack,
                RequestCode.BATCH_ACK_MESSAGE: pop_settler.ack_batch,
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME: pop_settler.change,
                RequestCode.QUERY_ASSIGNMENT: assigner.query,
                RequestCode.SET_MESSAGE_REQUEST_MODE: assigner.set_mode,
                RequestCode.CONSUMER_SEND_MSG_BACK: retrier.send_back,
                RequestCode.END_TRANSACTION: Transactions(half_messages, run_in_thread).end,
                RequestCode.HEART_BEAT: clients.heartbeat,
                RequestCode.UNREGISTER_CLIENT: clients.unregister,
                RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.list_consumers,
                RequestCode.CHECK_CLIENT_CONFIG: clients.check_filter,
                RequestCode.LOCK_BATCH_MQ: locks.lock,
                RequestCode.UNLOCK_BATCH_MQ: locks.unlock,
                RequestCode.QUERY_CONSUMER_OFFSET: reading(offsets.query),
                RequestCode.UPDATE_CONSUMER_OFFSET: reading(offsets.update),
                RequestCode.GET_MIN_OFFSET: reading(offsets.first),
                RequestCode.GET_MAX_OFFSET: reading(offsets.end),
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: reading(offsets.find),
                RequestCode.GET_EARLIEST_MSG_STORETIME: reading(offsets.earliest_time),
                RequestCode.QUERY_MESSAGE: lookup.query,
                RequestCode.VIEW_MESSAGE_BY_ID: lookup.view,
                RequestCode.GET_ROUTEINFO_BY_TOPIC: routes.route,
                **topic_admin.handlers(),
                **group_admin.handlers(),
                **stats.handlers(),
                **ClientAdmin(names.broker, broker, clients, lookup).handlers(),
            },
            dead_queues.translate,
        )
        self.requests = frozenset(service.handlers)
        """Codes of the requests that are answered."""
        self.new_connection = connections_of(config, service, unread, clients.on_closed)
        """Returns a connection for a client that has connected."""

    def close(self) -> None:
        """End everything that waits."""
        self._callers.close()
        self._lost_answers.close()
        self._checks.close()
        self._clients.close()
        self._puller.close()
        self._groups.close()

    def on_all_closed(self) -> None:
        """Write down what consumers committed until their connections ended."""
        self._offsets.close()
