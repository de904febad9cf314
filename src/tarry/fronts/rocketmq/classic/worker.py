"""The parts of the classic service in a worker, which carries out sends and passes on all else."""

from __future__ import annotations

import asyncio
from functools import partial

from loopgrpc import ByteBudget, UnreadBytes
from tarry.api.local import LocalBroker
from tarry.api.operations import GetTopic
from tarry.fronts.kit.admission import Admission
from tarry.fronts.rocketmq.classic.authentication import Authenticator
from tarry.fronts.rocketmq.classic.components import RECEIVED_BYTES_MAX, frame_bytes_max
from tarry.fronts.rocketmq.classic.connection import RemotingConnection
from tarry.fronts.rocketmq.classic.lost_answers import LostAnswers
from tarry.fronts.rocketmq.classic.message_bytes import PROPERTIES_BYTES_MAX
from tarry.fronts.rocketmq.classic.passage import SENDS, HomePassage
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.classic.sending import Sender
from tarry.fronts.rocketmq.classic.service import Service
from tarry.fronts.rocketmq.common.access_keys import read_keys
from tarry.fronts.rocketmq.common.broker_names import BrokerNames
from tarry.fronts.rocketmq.common.draft import DraftRules
from tarry.fronts.rocketmq.common.half_messages import HalfMessages
from tarry.fronts.rocketmq.common.send_queue import SendQueue
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry
from tarry.fronts.rocketmq.settings import RocketMQSettings


class WorkerComponents:
    """The parts of a worker. On the event loop's thread. ``home``: the path of its socket."""

    def __init__(
        self,
        broker: LocalBroker,
        loop: asyncio.AbstractEventLoop,
        run_in_thread: RunInThread,
        unread: UnreadBytes,
        home: str,
    ) -> None:
        config, settings = broker.config, RocketMQSettings.of(broker.config)
        self._frame_bytes_max = frame_bytes_max(config)
        self._unread = unread
        self._received = ByteBudget("requests that are not whole", RECEIVED_BYTES_MAX)
        self._new_passage = partial(HomePassage, home)
        topics = TopicRegistry(broker, run_in_thread, create=settings.rocketmq_create_topics == "on")
        queues = TopicQueues(settings.remoting_queues, made_with=lambda topic: broker.call(GetTopic(topic)).queues)
        rules, send_queue = DraftRules.of(config, PROPERTIES_BYTES_MAX), SendQueue(broker, loop, HalfMessages(broker))
        self._lost_answers = LostAnswers(broker, loop, config.dedupe_ms / 1000)
        names = BrokerNames.of(config)
        sender = Sender(broker, names, rules, topics, queues, send_queue, self._lost_answers, None, run_in_thread)
        self._service = Service(Authenticator(read_keys(settings.rocketmq_keys)), dict.fromkeys(SENDS, sender.send))

    def new_connection(self, admission: Admission) -> RemotingConnection:
        """Return a connection for a client that has connected."""
        return RemotingConnection(
            admission,
            self._frame_bytes_max,
            self._service.serve,
            lambda connection: None,
            self._received,
            self._unread,
            self._service.names_key,
            self._new_passage,
        )

    def close(self) -> None:
        """Tell the other processes nothing any more."""
        self._lost_answers.close()
