"""Push subscriptions: made, changed, shown and tried. Each change is durable when it returns.

All but the first and the list raise NotFoundError where there is no such subscription.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

from tarry.api.bounds import PAGE
from tarry.api.needs import Listed, OnPushSubscription, Right
from tarry.api.operation import NOTHING, Action, Int64, Natural, Operation, data, many
from tarry.api.push import CloudEventsMode, PushAttempt, PushInfo
from tarry.api.settings import Start

LIMIT_MAX = 1000


@dataclass(frozen=True, slots=True)
class SetPushSubscription(Operation[PushInfo]):
    """Make a subscription, or change one (None: as it is). A new one needs ``topic`` and ``url``.

    Args:
        group: its own, which is made with it; "push-NAME" without it. Neither it nor the topic can be changed later.
        url: another scheme, host or port drops the present secrets and headers, unless they are given again.
        secrets: each ``whsec_…``; without any, a new subscription, and one that goes elsewhere, gets one, which the
            answer shows, once.
        rotate: a new secret in front of the present one; the answer shows it, once.
        headers: sent with each request; all of them are replaced.
        concurrency: requests at a time. per_second: requests a second; 0: no limit.
        timeout_ms: how long a request may take. breaker_failures: so many failures in a row open the circuit breaker;
            0: never.
        cloudevents: "binary" or "structured": requests are CloudEvents in that content mode; "off": they are not.
        retry, tries, filter: of the group; see :class:`tarry.api.settings.GroupFields`. A new group has
            :data:`tarry.api.push.RETRY`.
        start: where a new group begins: "earliest" or "latest".

    Raises:
        InvalidArgumentError: a value is not allowed, or another subscription has the group. DiskFullError: nothing was
            changed.
    """

    wire = Action("set-push", "a push subscription, which is made if it is new", data(PushInfo))
    needs = OnPushSubscription(Right.MANAGE)
    name: str
    _: KW_ONLY
    topic: str | None = None
    url: str | None = field(default=None, repr=False)
    group: str | None = None
    secrets: list[str] | None = field(default=None, repr=False)
    rotate: bool = False
    headers: dict[str, str] | None = field(default=None, repr=False)
    concurrency: Int64 | None = None
    per_second: float | None = None
    timeout_ms: Int64 | None = None
    breaker_failures: Int64 | None = None
    cloudevents: CloudEventsMode | None = None
    retry: str | None = None
    tries: Int64 | None = None
    filter: str | None = None
    start: Start | None = None


@dataclass(frozen=True, slots=True)
class GetPushSubscription(Operation[PushInfo]):
    """A subscription, and how it does. Secrets are never shown."""

    wire = Action("push-info", "a push subscription, and how it does", data(PushInfo))
    needs = OnPushSubscription(Right.LOOK)
    name: str


@dataclass(frozen=True, slots=True)
class ListPushSubscriptions(Operation[list[PushInfo]]):
    """List all subscriptions, or those of a topic, by name."""

    wire = Action("pushes", "all push subscriptions, or those of a topic", many(data(PushInfo)))
    needs = Listed(lambda infos, may: [each for each in infos if may(each.topic, each.group)])
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class DeletePushSubscription(Operation[None]):
    """Push nothing more to a subscription, and forget it.

    Its group is deleted, too, unless ``keep_group``; its dead letters stay.
    """

    wire = Action("delete-push", "forget a push subscription; its dead letters stay", NOTHING)
    needs = OnPushSubscription(Right.MANAGE)
    name: str
    keep_group: bool = False


@dataclass(frozen=True, slots=True)
class PausePushSubscription(Operation[None]):
    """Push nothing, until it is resumed; messages wait in its group. ``reason``: for people."""

    wire = Action("pause-push", "push nothing for now", NOTHING)
    needs = OnPushSubscription(Right.MANAGE)
    name: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResumePushSubscription(Operation[None]):
    """Push again, also where the circuit breaker is open."""

    wire = Action("resume-push", "push again", NOTHING)
    needs = OnPushSubscription(Right.MANAGE)
    name: str


@dataclass(frozen=True, slots=True)
class ListPushAttempts(Operation[list[PushAttempt]]):
    """List the last requests, the newest first: of a subscription, of a message, or all.

    A message is named by its id, or its webhook-id. ``failed``: list only requests that were not answered by a 2xx.
    Some hundred are kept of each subscription, in memory.
    """

    wire = Action("push-attempts", "the last requests, and what came of them", many(data(PushAttempt)))
    needs = OnPushSubscription(Right.MANAGE)
    name: str | None = None
    _: KW_ONLY
    id: str | None = None
    failed: bool = False
    limit: Natural = 100

    def __post_init__(self) -> None:
        PAGE.check("limit", self.limit)


@dataclass(frozen=True, slots=True)
class TestPushSubscription(Operation[PushAttempt]):
    """Send one signed test request, and return its result.

    The request has a body of its own (``X-Tarry-Test: true``). Nothing is taken from the topic, and a paused
    subscription stays paused.

    Raises:
        UnavailableError: this broker does not push.
    """

    __test__ = False  # no test case, whatever pytest makes of the name
    wire = Action("test-push", "send one request to try a push subscription", data(PushAttempt))
    needs = OnPushSubscription(Right.MANAGE)
    name: str
