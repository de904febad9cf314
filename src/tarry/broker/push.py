"""Push subscriptions of a broker; the pusher, a front, carries them out if it is attached."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

from tarry.api.local import CheckTopic, any_topic
from tarry.api.operations import SetPushSubscription
from tarry.api.push import (
    RETRY,
    PushAttempt,
    PushInfo,
    PushProgress,
    PushSubscription,
    check_name,
    check_url,
    new_secret,
    not_there,
    origin_of,
    shown_url,
)
from tarry.api.pushing import Pusher
from tarry.base.addresses import AddressPolicy
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import ForbiddenError, InvalidArgumentError, UnavailableError
from tarry.broker.push_file import PushFile
from tarry.groups import ConsumerGroups

SUBSCRIPTIONS_MAX = 500
WAITS = ("open", "waiting", "stopped")
"""States in which nothing is pushed for now."""
_CHANGEABLE = ("url", "headers", "concurrency", "per_second", "timeout_ms", "breaker_failures", "cloudevents")


class Push:
    """A :class:`tarry.api.pushing.PushSubscriptions`. Any thread.

    One lock keeps the file and the groups of two changes apart; it is never held while the pusher is called.
    """

    def __init__(self, file: PushFile, groups: ConsumerGroups, config: Config, clock: Clock) -> None:
        self._file = file
        self._groups = groups
        self._clock = clock
        self._addresses = AddressPolicy.of(config.push_private_addresses, config.push_ports)
        self._lock = threading.Lock()
        self._subscriptions = file.read()
        self._pusher: Pusher | None = None

    # -- for the pusher ----------------------------------------------------------------------------------------------

    def all(self) -> Mapping[str, PushSubscription]:
        """See :meth:`tarry.api.pushing.PushSubscriptions.all`."""
        return MappingProxyType(self._subscriptions)  # it is replaced, never changed

    def attach(self, pusher: Pusher) -> Callable[[], None]:
        """See :meth:`tarry.api.pushing.PushSubscriptions.attach`."""
        with self._lock:
            if self._pusher is not None:
                raise InvalidArgumentError("this broker has a pusher already; allowed: one")
            self._pusher = pusher
        pusher.on_change()

        def detach() -> None:
            self._pusher = None

        return detach

    # -- for a test clock ----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have the pusher look again: the clock was moved."""
        if (pusher := self._pusher) is not None:
            pusher.wake()

    def is_idle(self) -> bool:
        """Return whether everything that is due was pushed and has its answer, but for what has to wait."""
        return all(self._is_idle(name, subscription) for name, subscription in self._subscriptions.items())

    def _is_idle(self, name: str, subscription: PushSubscription) -> bool:
        pusher = self._pusher
        if subscription.paused or pusher is None or not self._groups.has(subscription.topic, subscription.group):
            return True
        progress = pusher.progress(name)
        if progress is not None and progress.in_flight == 0 and progress.state in WAITS:
            # Until the pusher has looked at a clock that was moved, a wait that is over is still told of.
            return progress.until_ms is None or progress.until_ms > self._clock.now_ms()
        group = self._groups.find(subscription.topic, subscription.group)
        counts = group.counts()
        return group.settings.paused or not (counts["ready"] or counts["leased"] or counts["burying"])

    def next_ms(self) -> int | None:
        """Return when the first subscription that waits goes on by itself."""
        pusher, moments = self._pusher, []
        for name in self._subscriptions if pusher is not None else ():
            progress = pusher.progress(name) if pusher is not None else None
            if progress is not None and progress.until_ms is not None:
                moments.append(progress.until_ms)
        return min(moments, default=None)

    # -- changes -----------------------------------------------------------------------------------------------------

    # ``check`` asks for a right on a subscription's topic and group. It is called with the lock held that keeps the
    # subscription as it is. To whom it is forbidden, it looks like one that is not there.

    def set(self, request: SetPushSubscription, check: CheckTopic = any_topic) -> PushInfo:
        """Set a subscription; see :class:`tarry.api.operations.SetPushSubscription`."""
        with self._lock:
            former = self._subscriptions.get(check_name(request.name))
            if former is not None and _allows(check, former):
                subscription, secret = _changed(former, request)
            else:
                topic, url = self._check_new(request, check)
                if former is not None:  # somebody else has it
                    raise InvalidArgumentError(f"subscription {request.name!r} cannot be made; allowed: another name")
                subscription, secret = self._created(request, topic, url)
            self._check_target(subscription)
            self._set_group(request, subscription)
            self._write({**self._subscriptions, subscription.name: subscription})
        self._notify()
        return self._info(subscription, secret)

    def delete(self, name: str, *, keep_group: bool, check: CheckTopic = any_topic) -> None:
        """See :class:`tarry.api.operations.DeletePushSubscription`."""
        with self._lock:
            subscription = self._find(name, check)
            self._write({n: s for n, s in self._subscriptions.items() if n != name})
        self._notify()
        if not keep_group and self._groups.has(subscription.topic, subscription.group):
            self._groups.delete(subscription.topic, subscription.group)

    def pause(self, name: str, reason: str, check: CheckTopic = any_topic) -> None:
        """See :class:`tarry.api.operations.PausePushSubscription`."""
        self._change(name, check, paused=True, reason=reason)

    def resume(self, name: str, check: CheckTopic = any_topic) -> None:
        """See :class:`tarry.api.operations.ResumePushSubscription`."""
        self._change(name, check, paused=False, reason="")

    # -- looking -----------------------------------------------------------------------------------------------------

    def info(self, name: str, check: CheckTopic = any_topic) -> PushInfo:
        """Return a subscription, and its progress."""
        return self._info(self._find(name, check))

    def infos(self, topic: str | None) -> list[PushInfo]:
        """Return all subscriptions, or those of a topic, by name."""
        found = self._subscriptions
        return [self._info(found[name]) for name in sorted(found) if topic in (None, found[name].topic)]

    def states(self) -> dict[str, int]:
        """Return the number of subscriptions in each state."""
        return dict(Counter(info.state for info in self.infos(None)))

    def attempts(
        self, name: str | None, id: str | None, failed: bool, limit: int, check: CheckTopic = any_topic
    ) -> list[PushAttempt]:
        """See :class:`tarry.api.operations.ListPushAttempts`; none where this broker does not push."""
        if name is None:
            check(None)
        else:
            self._find(name, check)
        pusher = self._pusher
        return [] if pusher is None else pusher.attempts(name, id, failed, limit)

    def test(self, name: str, check: CheckTopic = any_topic) -> PushAttempt:
        """See :class:`tarry.api.operations.TestPushSubscription`."""
        subscription, pusher = self._find(name, check), self._pusher
        if pusher is None:
            raise UnavailableError("this broker does not push; allowed: where the setting push is on, and it serves")
        return pusher.test(subscription)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _find(self, name: str, check: CheckTopic) -> PushSubscription:
        subscription = self._subscriptions.get(name)
        if subscription is None or not _allows(check, subscription):
            raise not_there(name)
        return subscription

    def _check_new(self, request: SetPushSubscription, check: CheckTopic) -> tuple[str, str]:
        """Return the topic and the URL of a subscription that is to be made.

        Raises:
            ForbiddenError: the caller may not. InvalidArgumentError: one is missing, or there are too many.
        """
        if request.topic is not None:
            check(request.topic, request.group or _own_group(request.name))
        if request.topic is None or request.url is None:
            given = f"topic is {request.topic!r}, and url {request.url!r:.80}"
            raise InvalidArgumentError(
                f"subscription {request.name!r} is new, and {given}; allowed: both, a topic first"
            )
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise InvalidArgumentError(
                f"there are {SUBSCRIPTIONS_MAX} push subscriptions; allowed: {SUBSCRIPTIONS_MAX}"
            )
        return request.topic, request.url

    def _created(self, request: SetPushSubscription, topic: str, url: str) -> tuple[PushSubscription, str | None]:
        secret = new_secret() if request.secrets is None else None
        created = PushSubscription(
            name=request.name,
            topic=topic,
            group=request.group or _own_group(request.name),
            url=check_url(url),
            secrets=(secret,) if secret is not None else tuple(request.secrets or ()),
            created_ms=self._clock.now_ms(),
        )
        return created.changed(**_given(request)), secret

    def _check_target(self, subscription: PushSubscription) -> None:
        """Refuse at once what would be refused at each connection, and a group that another subscription has."""
        _, host, port = origin_of(subscription.url)
        is_literal = host.replace(".", "").isdecimal() or ":" in host
        refusal = self._addresses.port_refusal(port) or (self._addresses.refusal(host) if is_literal else None)
        if refusal is not None:
            raise InvalidArgumentError(f"url: {refusal}")
        for other in self._subscriptions.values():
            same = (other.topic, other.group) == (subscription.topic, subscription.group)
            if same and other.name != subscription.name:
                raise InvalidArgumentError(
                    f"group {other.group!r} of topic {other.topic!r} is that of subscription {other.name!r}; "
                    "allowed: a group of its own"
                )

    def _set_group(self, request: SetPushSubscription, subscription: PushSubscription) -> None:
        topic, group = subscription.topic, subscription.group
        retry = request.retry
        if retry is None and not self._groups.has(topic, group):
            retry = RETRY
        self._groups.set(topic, group, request.start, retry=retry, tries=request.tries, filter=request.filter)

    def _change(self, name: str, check: CheckTopic, **changes: Any) -> None:
        with self._lock:
            self._write({**self._subscriptions, name: self._find(name, check).changed(**changes)})
        self._notify()

    def _write(self, subscriptions: dict[str, PushSubscription]) -> None:
        self._file.write(subscriptions)
        self._subscriptions = subscriptions

    def _notify(self) -> None:
        if (pusher := self._pusher) is not None:
            pusher.on_change()

    def _info(self, subscription: PushSubscription, secret: str | None = None) -> PushInfo:
        pusher = self._pusher
        progress = None if pusher is None else pusher.progress(subscription.name)
        state = asdict(progress or PushProgress(state="off" if pusher is None else "running"))
        if subscription.paused:
            state |= {"state": "paused", "until_ms": None}
        fields = asdict(subscription) | {
            "url": shown_url(subscription.url),
            "secrets": len(subscription.secrets),
            "headers": sorted(subscription.headers),
        }
        return PushInfo(**fields, **state, secret=secret)


def _allows(check: CheckTopic, subscription: PushSubscription) -> bool:
    try:
        check(subscription.topic, subscription.group)
    except ForbiddenError:
        return False
    return True


def _own_group(name: str) -> str:
    """Return the name of the group of a subscription that names none."""
    return f"push-{name}"


def _changed(former: PushSubscription, request: SetPushSubscription) -> tuple[PushSubscription, str | None]:
    for name in ("topic", "group"):
        if getattr(request, name) not in (None, getattr(former, name)):
            raise InvalidArgumentError(
                f"{name} of subscription {former.name!r} is {getattr(former, name)!r} and cannot be changed; "
                "allowed: another subscription"
            )
    if request.rotate and request.secrets is not None:
        raise InvalidArgumentError("secrets and rotate are both given; allowed: one of them")
    secrets = tuple(request.secrets) if request.secrets is not None else None
    secret = None
    moved = request.url is not None and origin_of(check_url(request.url)) != origin_of(former.url)
    if moved:
        # The headers may be secrets of the former receiver, which a user who sets the URL need not know.
        former = replace(former, headers={})
    if request.rotate or (moved and secrets is None):
        secret = new_secret()
        # The newest present secret stays, for receivers that do not know the new one yet.
        secrets = (secret,) if moved else (secret, former.secrets[0])
    return former.changed(secrets=secrets, **_given(request)), secret


def _given(request: SetPushSubscription) -> dict[str, Any]:
    return {name: getattr(request, name) for name in _CHANGEABLE}
