"""Topics and groups as they come over the wire, and their names in the broker.

A name in a namespace is ``NAMESPACE%NAME``, as the original's remoting clients write it. Source: ``NamespaceUtil``,
``Validators`` and ``TopicValidator`` of apache/rocketmq.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from tarry.fronts.rocketmq.refusal import Code, Refusal
from tarry.fronts.rocketmq.stubs import definition

HALVES = "tarry.halves"
"""The topic of messages whose transaction is not decided."""
SEPARATOR = "%"
DEAD = "%DLQ%"
_NAME = re.compile(r"[A-Za-z0-9_|%-][A-Za-z0-9._|%/-]*\Z")
_NAME_CHARACTERS_MAX = 255
_TOPIC, _GROUP = int(Code.ILLEGAL_TOPIC), int(Code.ILLEGAL_CONSUMER_GROUP)
_SYSTEM = frozenset(
    {
        "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
    }
)  # fmt: skip
_ALLOWED = f"1 to {_NAME_CHARACTERS_MAX} of A-Z a-z 0-9 . _ % | / -, no system name"


@lru_cache(maxsize=4096)
def _checked(space: str, name: str, code: int, what: str) -> str:
    # Dead letters: the group's name is what is in the namespace.
    prefix, bare = (DEAD, name[len(DEAD) :]) if name.startswith(DEAD) else ("", name)
    full = f"{prefix}{space}{SEPARATOR}{bare}" if space else name
    bad = len(full) > _NAME_CHARACTERS_MAX or not _NAME.match(full) or name.startswith("tarry.")
    if bad or (what == "topic" and (name in _SYSTEM or name.startswith("rmq_sys_"))):
        raise Refusal(code, f"{what} {full!r:.300}; allowed: {_ALLOWED}")
    return full


def topic_of(resource: Any, space: str) -> str:
    """The broker's name of a topic; ``space`` is the client's namespace, where the resource has none of its own.

    Raises:
        Refusal: ILLEGAL_TOPIC.
    """
    return _checked(resource.resource_namespace or space, resource.name, _TOPIC, "topic")


def group_of(resource: Any, space: str) -> str:
    """The same of a consumer group.

    Raises:
        Refusal: ILLEGAL_CONSUMER_GROUP.
    """
    return _checked(resource.resource_namespace or space, resource.name, _GROUP, "consumer group")


def resource_of(asked: Any) -> Any:
    """A topic or a group as the client named it, for an answer."""
    return definition.Resource(resource_namespace=asked.resource_namespace, name=asked.name)
