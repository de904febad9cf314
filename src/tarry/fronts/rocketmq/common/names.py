"""Names of topics and groups in the broker.

A name in a namespace is ``NAMESPACE%NAME``, as RocketMQ's remoting clients write it. Source: ``NamespaceUtil``,
``Validators`` and ``TopicValidator`` of apache/rocketmq.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.identity import derived
from tarry.message.topics import OWN_TOPICS

HALF_MESSAGES = "tarry.halves"
"""The topic of messages whose transaction is not decided."""
SEPARATOR = "%"
"""Separator of a namespace and a name."""
RETRY_PREFIX = derived.RETRY_PREFIX
"""Prefix of the topic of messages that a group's classic consumers could not handle."""
DEAD_PREFIX = "%DLQ%"
"""Prefix of the topic of a group's dead letters."""
_NAME = re.compile(r"[A-Za-z0-9_|%-][A-Za-z0-9._|%/-]*\Z")
_NAME_CHARACTERS_MAX = 255
_SYSTEM = frozenset(
    {
        "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
    }
)  # fmt: skip
_ALLOWED = f"1 to {_NAME_CHARACTERS_MAX} of A-Z a-z 0-9 . _ % | / -, no system name"


# Each call of a client names a topic, and clients name the same few: so results are cached.


@lru_cache(maxsize=4096)
def topic_name(name: str, space: str) -> str:
    """Return the broker's name of a topic in the namespace ``space`` (empty: none).

    Raises:
        Refusal: ILLEGAL_TOPIC.
    """
    full = _full_name(name, space)
    if _is_bad(name, full) or name in _SYSTEM or name.startswith("rmq_sys_"):
        raise Refusal(Code.ILLEGAL_TOPIC, f"topic {full!r:.300}; allowed: {_ALLOWED}")
    return full


@lru_cache(maxsize=4096)
def group_name(name: str, space: str) -> str:
    """Return the broker's name of a consumer group in the namespace ``space`` (empty: none).

    Raises:
        Refusal: ILLEGAL_CONSUMER_GROUP.
    """
    full = _full_name(name, space)
    if _is_bad(name, full):
        raise Refusal(Code.ILLEGAL_CONSUMER_GROUP, f"consumer group {full!r:.300}; allowed: {_ALLOWED}")
    return full


def _full_name(name: str, space: str) -> str:
    # Dead letters: the prefix stays in front of the namespace.
    prefix, bare = (DEAD_PREFIX, name[len(DEAD_PREFIX) :]) if name.startswith(DEAD_PREFIX) else ("", name)
    return f"{prefix}{space}{SEPARATOR}{bare}" if space else name


def _is_bad(name: str, full: str) -> bool:
    return len(full) > _NAME_CHARACTERS_MAX or not _NAME.match(full) or name.startswith(OWN_TOPICS)
