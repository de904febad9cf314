"""Rights, and what an operation says of those that it needs.

Each operation declares ``needs`` beside ``wire``. What checks them is :mod:`tarry.identity`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MayLook = Callable[[str, str | None], bool]
"""Return whether a caller may see a topic, or a topic's group."""


class Right(StrEnum):
    """Rights of an identity: on topics and groups, and (the last four) on the broker itself."""

    PRODUCE = "produce"
    """Schedule; cancel and move what is pending in the topic."""
    CONSUME = "consume"
    """Receive and settle, for a group; the group is made if it is new."""
    LOOK = "look"
    """Names, counts, lag, forecasts and histories: no bodies, properties and keys.

    The other four have it in them.
    """
    BROWSE = "browse"
    """Messages with their bodies, without consuming them."""
    MANAGE = "manage"
    """Settings of topics and groups; pause, seek, delete, respawn, purge; push subscriptions."""
    ADMIN = "admin"
    """Everything, identities and tokens too."""
    PIPELINE = "pipeline"
    """The intake and the store: Spark's processes."""
    BULK = "bulk"
    """Bulk jobs, whose files go around the checks of single messages."""
    FRONT = "front"
    """Serve others: a gateway that is known by its certificate. One with a secret is not asked for it."""


OF_TOPICS = (Right.PRODUCE, Right.CONSUME, Right.LOOK, Right.BROWSE, Right.MANAGE)
OF_THE_BROKER = (Right.ADMIN, Right.PIPELINE, Right.BULK, Right.FRONT)


@dataclass(frozen=True, slots=True)
class OnTopic:
    """A right on the request's ``topic``, and on its ``group`` if it names one. No topic: on all."""

    right: Right


@dataclass(frozen=True, slots=True)
class OnFound:
    """A right on the topic of a message that has to be found first.

    The broker asks when it has found the message, before it changes or returns anything. A request that names its
    ``topic`` is asked about that one.
    """

    right: Right


@dataclass(frozen=True, slots=True)
class OnPushSubscription:
    """A right on the topic and the group of the push subscription that the request names."""

    right: Right


@dataclass(frozen=True, slots=True)
class OnBroker:
    """A right on the broker itself."""

    right: Right


@dataclass(frozen=True, slots=True)
class Listed:
    """The right to look at the request's ``topic``; without one, the answer has what may be seen."""

    keep: Callable[[Any, MayLook], Any]
    """Return the part of an answer that a caller may see."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """No right: everybody who is known may ask."""


Needs = OnTopic | OnFound | OnPushSubscription | OnBroker | Listed | Nothing
