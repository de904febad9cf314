"""The parts of the classic service in a worker, which carries out sends and passes on all else."""

from __future__ import annotations

import asyncio
from functools import partial

from loopgrpc import UnreadBytes
from tarry.api.local import AnyBroker
from tarry.api.operations import GetTopic
from tarry.fronts.rocketmq.classic.components import connections_of
from tarry.fronts.rocketmq.classic.lost_answers import LostAnswers
from tarry.fronts.rocketmq.classic.message_bytes import PROPERTIES_BYTES_MAX
from tarry.fronts.rocketmq.classic.passage import SENDS, HomePassage
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.classic.sending import Sender
from tarry.fronts.rocketmq.classic.service import Service
from tarry.fronts.rocketmq.common.access_keys import read_keys
from tarry.fronts.rocketmq.common.broker_names import BrokerNames
from tarry.fronts.rocketmq.common.callers import SigningCallers
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
        broker: AnyBroker,
        loop: asyncio.AbstractEventLoop,
        run_in_thread: RunInThread,
        unread: UnreadBytes,
        home: str,
    ) -> None:
        config, settings = broker.config, RocketMQSettings.of(broker.config)
        topics = TopicRegistry(broker, run_in_thread, create=settings.rocketmq_create_topics == "on")
        queues = TopicQueues(settings.remoting_queues, made_with=lambda topic: broker.call(GetTopic(topic)).queues)
        rules, send_queue = DraftRules.of(config, PROPERTIES_BYTES_MAX), SendQueue(broker, loop, HalfMessages(broker))
        self._lost_answers = LostAnswers(broker, loop, config.dedupe_ms / 1000)
        names = BrokerNames.of(config)
        sender = Sender(broker, names, rules, topics, queues, send_queue, self._lost_answers, None, run_in_thread)
        self._callers = callers = SigningCallers(broker, loop, read_keys(settings.rocketmq_keys))
        service = Service(callers, dict.fromkeys(SENDS, sender.send))
        new_passage = partial(HomePassage, home, callers)
        self.new_connection = connections_of(config, service, unread, lambda _: None, new_passage)
        """Returns a connection for a client that has connected."""

    def close(self) -> None:
        """Tell the other processes nothing any more."""
        self._callers.close()
        self._lost_answers.close()
