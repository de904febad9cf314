"""Rights on what RocketMQ's requests name, as these clients are told of them.

``peer``: the client's address, for the audit log.

What opens the topics of a group's retries and dead letters is a rule of the broker's own, on every port: see
:class:`tarry.identity.rights.Rights`.
"""

from __future__ import annotations

from tarry.api.needs import Right
from tarry.base.errors import ForbiddenError
from tarry.identity.principal import Principal
from tarry.identity.rights import Rights


def may_consume(rights: Rights, topic: str, group: str) -> bool:
    """Return whether a topic may be read for a group."""
    return rights.allow(Right.CONSUME, topic, group)


def check_consume(principal: Principal, topic: str, group: str, *, peer: str | None = None) -> None:
    """Refuse a group's reading of a topic.

    Raises:
        ForbiddenError: it is not granted.
    """
    principal.check(Right.CONSUME, topic, group, peer=peer)


def may_browse(rights: Rights, topic: str) -> bool:
    """Return whether messages of a topic may be looked at, without consuming them."""
    return rights.allow(Right.BROWSE, topic)


def check_browse(principal: Principal, topic: str, *, peer: str | None = None) -> None:
    """Refuse a look at a topic's messages.

    Raises:
        ForbiddenError: it is not granted.
    """
    principal.check(Right.BROWSE, topic, peer=peer)


def may_look(rights: Rights, topic: str) -> bool:
    """Return whether a topic's name, its queues and offsets may be told."""
    return rights.allow(Right.LOOK, topic)


def check_look(principal: Principal, topic: str, *, peer: str | None = None) -> None:
    """Refuse to tell of a topic.

    Raises:
        ForbiddenError: it is not granted.
    """
    principal.check(Right.LOOK, topic, peer=peer)


def check_produce(principal: Principal, topic: str, *, peer: str | None = None) -> None:
    """Refuse a message for a topic.

    Raises:
        ForbiddenError: it is not granted.
    """
    principal.check(Right.PRODUCE, topic, peer=peer)


def check_group(principal: Principal, right: Right, group: str, *, peer: str | None = None) -> None:
    """Refuse what concerns a group as a whole, in whatever topics it reads.

    Raises:
        ForbiddenError: the right is granted neither on all topics nor for this group by its name.
    """
    if not principal.rights.allow_group(right, group):
        principal.note_refusal(right, None, group, asked=principal.asks(peer))
        raise ForbiddenError(f"{principal.name} has not the right {right} for group {group!r:.300}; see tarry whoami")
