"""Codes of requests and answers, and the refusal of requests.

Source: ``RequestCode``, ``ResponseCode`` of apache/rocketmq.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeVar

from tarry.fronts.rocketmq.common.refusal import Code, Refusal


class RequestCode(IntEnum):
    """Codes of requests. Others are answered with REQUEST_CODE_NOT_SUPPORTED."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    GET_ALL_TOPIC_CONFIG = 21
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    CHECK_CLIENT_CONFIG = 46
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    GET_TOPICS_BY_CLUSTER = 224
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    GET_CONSUMER_RUNNING_INFO = 307
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_BROKER_CONSUME_STATS = 317
    SEND_BATCH_MESSAGE = 320
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    GET_ALL_PRODUCER_INFO = 328
    QUERY_TOPICS_BY_CONSUMER = 343
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    POP_MESSAGE = 200_050
    ACK_MESSAGE = 200_051
    CHANGE_MESSAGE_INVISIBLETIME = 200_053
    NOTIFICATION = 200_054
    BATCH_ACK_MESSAGE = 200_151


class ToClient(IntEnum):
    """Codes of the broker's requests to a client.

    Only PUSH_REPLY_MESSAGE_TO_CLIENT, and requests that mqadmin sends through the broker, are answered.
    """

    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    RESET_CONSUMER_CLIENT_OFFSET = 220
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326


class ResponseCode(IntEnum):
    """Codes of answers."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_TIMEOUT = 210
    ILLEGAL_OPERATION = 604


class RequestRefused(Exception):  # noqa: N818  it is an answer, not a fault of the program
    """Raised in a handler: the client gets ``code`` with ``text`` as its remark."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


_OF_SHARED: dict[int, ResponseCode] = {
    Code.TOPIC_NOT_FOUND: ResponseCode.TOPIC_NOT_EXIST,
    Code.ILLEGAL_TOPIC: ResponseCode.INVALID_PARAMETER,
    Code.ILLEGAL_CONSUMER_GROUP: ResponseCode.INVALID_PARAMETER,
    Code.ILLEGAL_FILTER_EXPRESSION: ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    Code.UNAUTHORIZED: ResponseCode.NO_PERMISSION,
    Code.FORBIDDEN: ResponseCode.NO_PERMISSION,
    Code.NOT_FOUND: ResponseCode.ILLEGAL_OPERATION,
    Code.BAD_REQUEST: ResponseCode.INVALID_PARAMETER,
    # After these two, clients send again, to another broker if there is one.
    Code.TOO_MANY_REQUESTS: ResponseCode.SYSTEM_BUSY,
    Code.HA_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    Code.INTERNAL_SERVER_ERROR: ResponseCode.SYSTEM_ERROR,
    Code.ILLEGAL_DELIVERY_TIME: ResponseCode.MESSAGE_ILLEGAL,
    Code.MESSAGE_BODY_EMPTY: ResponseCode.MESSAGE_ILLEGAL,
    Code.MESSAGE_BODY_TOO_LARGE: ResponseCode.MESSAGE_ILLEGAL,
    Code.MESSAGE_CORRUPTED: ResponseCode.MESSAGE_ILLEGAL,
    Code.MESSAGE_PROPERTIES_TOO_LARGE: ResponseCode.MESSAGE_ILLEGAL,
    Code.ILLEGAL_MESSAGE_PROPERTY_KEY: ResponseCode.MESSAGE_ILLEGAL,
    Code.ILLEGAL_MESSAGE_TAG: ResponseCode.MESSAGE_ILLEGAL,
    Code.ILLEGAL_MESSAGE_KEY: ResponseCode.MESSAGE_ILLEGAL,
    Code.ILLEGAL_MESSAGE_GROUP: ResponseCode.MESSAGE_ILLEGAL,
    Code.ILLEGAL_MESSAGE_ID: ResponseCode.MESSAGE_ILLEGAL,
}


V = TypeVar("V")


def by_both_forms(by_code: Mapping[int, V]) -> dict[int, V]:
    """Return a table by code, and by the form in which some codes arrive.

    A ROCKETMQ header only has room for the lower half of a code: those of pop arrive as that.
    """
    return {code & 0xFFFF: value for code, value in by_code.items()} | dict(by_code)


def code_of(refusal: Refusal) -> ResponseCode:
    """Return the classic code for a refusal, whose code is one of the newer protocol's."""
    return _OF_SHARED.get(refusal.code, ResponseCode.SYSTEM_ERROR)
