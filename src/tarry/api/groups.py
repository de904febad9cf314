"""Consumer groups and topics: their settings, checked.

The fields themselves are in :mod:`tarry.api.settings`; :mod:`tarry.api.group_info` is what is told of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from tarry.api.retry import parse_retry
from tarry.api.settings import QUEUES_MAX, GroupFields, TopicFields, check_number
from tarry.base.errors import InvalidArgumentError
from tarry.base.printable import shown
from tarry.message.dead_topics import is_dead_topic
from tarry.message.filter import parse_filter
from tarry.message.options import LATE_WAYS

INT32_MAX = 2**31 - 1
YEAR_MS = 366 * 86_400_000

S = TypeVar("S", "GroupSettings", "TopicSettings")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings(GroupFields):
    """The settings of one group, checked.

    Raises:
        InvalidArgumentError: one is not allowed; says which values are.
    """

    @classmethod
    def of(cls, topic: str) -> GroupSettings:
        """Return the defaults for a group of ``topic``; groups of dead letters retry for ever."""
        return cls(tries=0) if is_dead_topic(topic) else cls()

    def changed(self, **given: Any) -> GroupSettings:
        """Return a copy with new values; None leaves a setting as it is."""
        return _changed(self, given)

    def __post_init__(self) -> None:
        check_number("tries", self.tries, 0, INT32_MAX, "0 (no limit)")
        check_number("inflight_max", self.inflight_max, 0, INT32_MAX, "0 (no limit)")
        check_number("max_per_second", self.max_per_second, 0, INT32_MAX, "0 (no limit)")
        check_number("lease_ms", self.lease_ms, 0, YEAR_MS, "0 (the broker's)")
        _check_truths(self, "ordered", "paused")
        if self.retry != "":
            parse_retry(self.retry)
        if self.filter != "":
            parse_filter(self.filter)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings(TopicFields):
    """Settings for all groups of a topic: handling of late messages, and order.

    Raises:
        InvalidArgumentError: a value is not allowed; says which are.
    """

    def changed(self, **given: Any) -> TopicSettings:
        """Return a copy with new values; None leaves a setting as it is."""
        return _changed(self, given)

    def __post_init__(self) -> None:
        if self.late not in ("", *LATE_WAYS):
            raise InvalidArgumentError(f"late is {shown(self.late)}; allowed: {', '.join(LATE_WAYS)}, or '' for none")
        check_number("lateness_ms_max", self.lateness_ms_max, -1, 1 << 50, "-1 (none)")
        check_number("max_per_second", self.max_per_second, 0, INT32_MAX, "0 (no limit)")
        check_number("queues", self.queues, 0, QUEUES_MAX, "0 (the broker's)")
        _check_truths(self, "ordered", "declared")


def not_default(settings: GroupSettings | TopicSettings, default: object) -> dict[str, Any]:
    """Return the fields that differ from the default, as plain data."""
    return {f.name: v for f in fields(settings) if (v := getattr(settings, f.name)) != getattr(default, f.name)}


def _changed(settings: S, given: dict[str, Any]) -> S:
    return replace(settings, **{name: value for name, value in given.items() if value is not None})


def _check_truths(settings: GroupSettings | TopicSettings, *names: str) -> None:
    for name in names:
        if not isinstance(getattr(settings, name), bool):
            raise InvalidArgumentError(f"{name} is {shown(getattr(settings, name))}; allowed: true or false")
