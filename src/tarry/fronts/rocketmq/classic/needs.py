"""Rights that requests need, by their code.

A code that is not listed is answered to callers with all rights alone.

``inside``: the handler asks, since the topic is in the body, or of a message that has to be found first, or since the
answer is a list of which a caller gets what it may see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tarry.api.needs import Right
from tarry.fronts.rocketmq.classic.codes import RequestCode, RequestRefused, ResponseCode, by_both_forms
from tarry.fronts.rocketmq.classic.connection import OpenRequest
from tarry.fronts.rocketmq.classic.fields import json_list, json_object, json_text
from tarry.fronts.rocketmq.classic.group_lists import only_looks
from tarry.fronts.rocketmq.classic.sending import sent_fields
from tarry.fronts.rocketmq.common.broker_names import TRACE
from tarry.fronts.rocketmq.common.delay_topics import is_delay_topic
from tarry.fronts.rocketmq.common.rights import check_browse, check_consume, check_group, check_look, check_produce

Need = Callable[[OpenRequest], None]
"""Refuses a request whose caller has not the right.

Raises:
    ForbiddenError: names the right. RequestRefused: what the right is on is missing.
"""


def check_needs(request: OpenRequest) -> None:
    """Refuse a request for which its caller has no right.

    Raises:
        ForbiddenError, RequestRefused: as :data:`Need`.
    """
    need = NEEDS.get(request.code)
    if need is None:
        raise RequestRefused(ResponseCode.NO_PERMISSION, f"request code {request.code} is for callers with all rights")
    need(request)


def nothing(request: OpenRequest) -> None:
    """Everybody who is known may ask: it tells, and changes, nothing of others."""


def inside(request: OpenRequest) -> None:
    """Leave it to the handler."""


def _produce(request: OpenRequest) -> None:
    topic = sent_fields(request).text("topic")
    if topic != TRACE:  # thrown away
        check_produce(request.principal, topic, peer=request.peer_host)


def _recall(request: OpenRequest) -> None:
    check_produce(request.principal, request.fields.text("topic"), peer=request.peer_host)


def _consume(request: OpenRequest) -> None:
    topic, group = request.fields.text("topic"), request.fields.text("consumerGroup")
    if is_delay_topic(topic):
        return  # nothing is there to be read
    if only_looks(group):
        check_browse(request.principal, topic, peer=request.peer_host)
    else:
        check_consume(request.principal, topic, group, peer=request.peer_host)


def _look(request: OpenRequest) -> None:
    topic = request.fields.text("topic")
    if not is_delay_topic(topic):
        check_look(request.principal, topic, peer=request.peer_host)


def _look_at_counts(request: OpenRequest) -> None:
    if is_delay_topic(request.fields.text("topic")):
        _look_at_all(request)  # it counts what is pending in all topics
    _look(request)


def _look_at_all(request: OpenRequest) -> None:
    request.principal.check(Right.LOOK, peer=request.peer_host)


def _look_at_group(request: OpenRequest) -> None:
    request.principal.check(
        Right.LOOK, request.fields.text("topic"), request.fields.text("group"), peer=request.peer_host
    )


def _of_members(request: OpenRequest) -> None:
    """Ask those for the right to look at a group who are not in it: by a heartbeat, which was checked."""
    group = request.fields.text("consumerGroup")
    if group not in request.connection.groups:
        check_group(request.principal, Right.LOOK, group, peer=request.peer_host)


def _manage(request: OpenRequest) -> None:
    request.principal.check(Right.MANAGE, request.fields.text("topic"), peer=request.peer_host)


def _manage_consumer(request: OpenRequest) -> None:
    check_group(request.principal, Right.MANAGE, request.fields.text("consumerGroup"), peer=request.peer_host)


def _manage_listed(request: OpenRequest) -> None:
    for config in json_list(json_object(request.command.body).get("topicConfigList"), "topicConfigList"):
        request.principal.check(Right.MANAGE, json_text(config, "topicName"), peer=request.peer_host)


def _named(request: OpenRequest) -> tuple[str, str]:
    body: dict[str, Any] = json_object(request.command.body)
    return json_text(body, "topic"), json_text(body, "consumerGroup")


def _consume_named(request: OpenRequest) -> None:
    check_consume(request.principal, *_named(request), peer=request.peer_host)


def _manage_named(request: OpenRequest) -> None:
    request.principal.check(Right.MANAGE, *_named(request), peer=request.peer_host)


_READING = (
    RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION,
    RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_MAX_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_EARLIEST_MSG_STORETIME,
)  # fmt: skip
READING = frozenset(by_both_forms(dict.fromkeys(_READING)))
"""Requests about one queue, which may stand for a topic of dead letters."""
_BY_CODE: dict[int, Need] = {
    RequestCode.SEND_MESSAGE: _produce,
    RequestCode.SEND_MESSAGE_V2: _produce,
    RequestCode.SEND_BATCH_MESSAGE: _produce,
    RequestCode.SEND_REPLY_MESSAGE: _produce,
    RequestCode.SEND_REPLY_MESSAGE_V2: _produce,
    RequestCode.RECALL_MESSAGE: _recall,
    RequestCode.END_TRANSACTION: inside,
    RequestCode.PULL_MESSAGE: _consume,
    RequestCode.LITE_PULL_MESSAGE: _consume,
    RequestCode.POP_MESSAGE: _consume,
    RequestCode.NOTIFICATION: _consume,
    RequestCode.ACK_MESSAGE: _consume,
    RequestCode.BATCH_ACK_MESSAGE: inside,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _consume,
    RequestCode.CONSUMER_SEND_MSG_BACK: inside,
    RequestCode.QUERY_CONSUMER_OFFSET: _consume,
    RequestCode.UPDATE_CONSUMER_OFFSET: _consume,
    RequestCode.QUERY_ASSIGNMENT: _consume_named,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _manage_named,
    RequestCode.LOCK_BATCH_MQ: inside,
    RequestCode.UNLOCK_BATCH_MQ: inside,
    RequestCode.HEART_BEAT: inside,
    RequestCode.UNREGISTER_CLIENT: nothing,
    RequestCode.CHECK_CLIENT_CONFIG: nothing,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _of_members,
    RequestCode.GET_MIN_OFFSET: _look,
    RequestCode.GET_MAX_OFFSET: _look,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _look,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _look,
    RequestCode.QUERY_MESSAGE: inside,
    RequestCode.VIEW_MESSAGE_BY_ID: inside,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: inside,
    RequestCode.GET_BROKER_CLUSTER_INFO: nothing,
    RequestCode.GET_BROKER_RUNTIME_INFO: _look_at_all,
    RequestCode.GET_BROKER_CONFIG: _look_at_all,
    RequestCode.GET_KV_CONFIG: nothing,
    RequestCode.DELETE_KV_CONFIG: nothing,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: inside,
    RequestCode.GET_TOPICS_BY_CLUSTER: inside,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: nothing,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: nothing,
    RequestCode.GET_TOPIC_STATS_INFO: _look_at_counts,
    RequestCode.GET_TOPIC_CONFIG: _look,
    RequestCode.GET_ALL_TOPIC_CONFIG: inside,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _manage,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _manage_listed,
    RequestCode.DELETE_TOPIC_IN_BROKER: _manage,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: nothing,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: inside,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: inside,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: inside,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: inside,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: inside,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: inside,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: inside,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: inside,
    RequestCode.GET_CONSUME_STATS: inside,
    RequestCode.GET_BROKER_CONSUME_STATS: inside,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _of_members,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _look_at_all,
    RequestCode.GET_ALL_PRODUCER_INFO: _look_at_all,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _look_at_group,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _manage_consumer,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _manage_consumer,
}
NEEDS: Mapping[int, Need] = by_both_forms(_BY_CODE)
"""Rights by code."""
