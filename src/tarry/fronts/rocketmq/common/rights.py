"""Rights on topics that RocketMQ makes of a group's name, beside the broker's own rules.

- ``%RETRY%GROUP`` has messages of all topics that a group reads. Whoever may consume for the group by its name
  (``consume orders.* group:billing``, or ``consume * group:billing``) works as that group, and may use its retry topic.
  A grant for any group (``consume orders.*``) does not open it: it would open messages of other topics.
- ``%DLQ%TOPIC/GROUP`` has a group's dead letters of one topic. Whoever may consume the topic for the group, or browse
  the topic, may read them; ``%DLQ%GROUP`` itself goes by the rule of the retry topic.

What is granted or denied on these names themselves counts, too.
"""

from __future__ import annotations

from functools import lru_cache

from tarry.api.needs import OF_TOPICS, Right
from tarry.base.errors import ForbiddenError
from tarry.fronts.rocketmq.common.names import DEAD_PREFIX, RETRY_PREFIX
from tarry.identity.grants import ANY
from tarry.identity.principal import Principal
from tarry.identity.rights import Rights

_OF_A_GROUP = (RETRY_PREFIX, DEAD_PREFIX)
_DECISIONS_MAX = 4096


def may_consume(rights: Rights, topic: str, group: str) -> bool:
    """Return whether a topic may be read for a group."""
    if rights.allow(Right.CONSUME, topic, group):
        return True
    return topic.startswith(_OF_A_GROUP) and _may_consume_own(rights, topic, group)


def check_consume(principal: Principal, topic: str, group: str) -> None:
    """Refuse a group's reading of a topic.

    Raises:
        ForbiddenError: it is not granted.
    """
    if not may_consume(principal.rights, topic, group):
        principal.check(Right.CONSUME, topic, group)


def may_browse(rights: Rights, topic: str) -> bool:
    """Return whether messages of a topic may be looked at, without consuming them."""
    if rights.allow(Right.BROWSE, topic):
        return True
    return topic.startswith(DEAD_PREFIX) and not rights.deny(Right.BROWSE, topic) and _may_read_dead(rights, topic)


def check_browse(principal: Principal, topic: str) -> None:
    """Refuse a look at a topic's messages.

    Raises:
        ForbiddenError: it is not granted.
    """
    if not may_browse(principal.rights, topic):
        principal.check(Right.BROWSE, topic)


def may_look(rights: Rights, topic: str) -> bool:
    """Return whether a topic's name, its queues and offsets may be told."""
    if rights.allow(Right.LOOK, topic):
        return True
    if not topic.startswith(_OF_A_GROUP) or rights.deny(Right.LOOK, topic):
        return False
    group = _group_of(topic)
    return names_group(rights, OF_TOPICS, group) if group is not None else _may_read_dead(rights, topic)


def check_look(principal: Principal, topic: str) -> None:
    """Refuse to tell of a topic.

    Raises:
        ForbiddenError: it is not granted.
    """
    if not may_look(principal.rights, topic):
        principal.check(Right.LOOK, topic)


def check_produce(principal: Principal, topic: str) -> None:
    """Refuse a message for a topic; a group may send to its own retries and dead letters.

    Raises:
        ForbiddenError: it is not granted.
    """
    rights = principal.rights
    if rights.allow(Right.PRODUCE, topic):
        return
    group = _group_of(topic) if topic.startswith(_OF_A_GROUP) else None
    is_own = group is not None and names_group(rights, (Right.CONSUME,), group)
    if not is_own or rights.deny(Right.PRODUCE, topic):
        principal.check(Right.PRODUCE, topic)


def check_group(principal: Principal, right: Right, group: str) -> None:
    """Refuse what concerns a group as a whole, in whatever topics it reads.

    Raises:
        ForbiddenError: the right is granted neither on all topics nor for this group by its name.
    """
    rights, among = principal.rights, OF_TOPICS if right is Right.LOOK else (right,)
    if not rights.allow(right) and not names_group(rights, among, group):
        principal.note_refusal(right, None, group)
        raise ForbiddenError(f"{principal.name} has not the right {right} for group {group!r:.300}; see tarry whoami")


@lru_cache(_DECISIONS_MAX)
def names_group(rights: Rights, among: tuple[Right, ...], group: str) -> bool:
    """Return whether one of these rights is granted for a group: on all topics, or by the group's name."""
    grants = [grant for grant in rights.grants if grant.right in among and grant.is_for(group)]
    if any(grant.is_denied and grant.topics == ANY for grant in grants):
        return False
    named = (grant for grant in grants if grant.groups != ANY or grant.topics == ANY)
    return rights.is_admin or any(not grant.is_denied for grant in named)


@lru_cache(_DECISIONS_MAX)
def _may_consume_own(rights: Rights, topic: str, group: str) -> bool:
    if rights.deny(Right.CONSUME, topic, group):
        return False
    if topic == RETRY_PREFIX + group:
        return names_group(rights, (Right.CONSUME,), group)
    return topic.startswith(DEAD_PREFIX) and _may_read_dead(rights, topic)


def _may_read_dead(rights: Rights, topic: str) -> bool:
    group = _group_of(topic)
    if group is not None:
        return names_group(rights, (Right.CONSUME,), group)
    origin, _, group = topic.removeprefix(DEAD_PREFIX).rpartition("/")
    if not origin or origin.endswith("/"):
        return False  # a digest in the place of names
    return rights.allow(Right.BROWSE, origin) or may_consume(rights, origin, group)


def _group_of(topic: str) -> str | None:
    """Return the group whose retries or dead letters of all topics a topic has; None: it is another topic."""
    if topic.startswith(RETRY_PREFIX):
        return topic.removeprefix(RETRY_PREFIX)
    return topic.removeprefix(DEAD_PREFIX) if topic.startswith(DEAD_PREFIX) and "/" not in topic else None
