"""The settings of groups and topics: values that are checked when they are made. ``None`` leaves a setting as it is."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from tarry.base.columns import shown
from tarry.base.dead_topics import is_dead_topic
from tarry.base.errors import InvalidArgumentError
from tarry.base.message import LATE_WAYS
from tarry.groups.filter import parse_filter
from tarry.groups.retry import parse_retry

TRIES = 16
INT32_MAX = 2**31 - 1
YEAR_MS = 366 * 86_400_000

_T = TypeVar("_T", "GroupSettings", "TopicSettings")


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How a group treats its messages."""

    retry: str = ""
    """Back-off after a nack without a delay (:mod:`tarry.groups.retry`); empty: fixed, ``retry_ms`` of the broker."""
    tries: int = TRIES
    """How many times a message is handed out before it goes to the dead letters; 0: no limit."""
    inflight_max: int = 0
    """Messages leased at a time, over all consumers; 0: no limit but theirs."""
    filter: str = ""
    """What the group wants (:mod:`tarry.groups.filter`); empty: everything."""
    ordered: bool = False
    """Of each ordering key, one message at a time."""
    paused: bool = False
    """Nothing is handed out."""
    lease_ms: int = 0
    """Lease of consumers that ask for none; 0: ``lease_ms`` of the broker."""

    @classmethod
    def of(cls, topic: str) -> GroupSettings:
        """The defaults for a group of ``topic``: what fails among dead letters is tried for ever."""
        return cls(tries=0) if is_dead_topic(topic) else cls()

    def changed(self, **given: Any) -> GroupSettings:
        """With new values.

        Raises:
            InvalidArgumentError: one is not allowed; says which are.
        """
        return _changed(self, given)

    def __post_init__(self) -> None:
        _check_number("tries", self.tries, 0, INT32_MAX, "0 (no limit)")
        _check_number("inflight_max", self.inflight_max, 0, INT32_MAX, "0 (no limit)")
        _check_number("lease_ms", self.lease_ms, 0, YEAR_MS, "0 (the broker's)")
        _check_truths(self, "ordered", "paused")
        if self.retry != "":
            parse_retry(self.retry)
        if self.filter != "":
            parse_filter(self.filter)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What a topic's groups are told: what becomes of messages that are late, and about order."""

    late: str = ""
    """deliver, drop or dead, for messages that do not say it themselves; empty: drop."""
    lateness_ms_max: int = -1
    """How long after its due time a message without an expiry is not late yet; -1: for ever."""
    ordered: bool = False
    """All of its groups keep the order of ordering keys, whatever their own settings."""
    declared: bool = False
    """It is there before it has a message, for fronts that do not make topics by their being named."""

    def changed(self, **given: Any) -> TopicSettings:
        """With new values.

        Raises:
            InvalidArgumentError: one is not allowed; says which are.
        """
        return _changed(self, given)

    def __post_init__(self) -> None:
        if self.late not in ("", *LATE_WAYS):
            raise InvalidArgumentError(f"late is {shown(self.late)}; allowed: {', '.join(LATE_WAYS)}, or '' for none")
        _check_number("lateness_ms_max", self.lateness_ms_max, -1, 1 << 50, "-1 (none)")
        _check_truths(self, "ordered", "declared")


def not_default(settings: GroupSettings | TopicSettings, default: object) -> dict[str, Any]:
    """The fields that differ from the default, as plain data."""
    return {f.name: v for f in fields(settings) if (v := getattr(settings, f.name)) != getattr(default, f.name)}


def _changed(settings: _T, given: dict[str, Any]) -> _T:
    return replace(settings, **{name: value for name, value in given.items() if value is not None})


def _check_truths(settings: GroupSettings | TopicSettings, *names: str) -> None:
    for name in names:
        if not isinstance(getattr(settings, name), bool):
            raise InvalidArgumentError(f"{name} is {shown(getattr(settings, name))}; allowed: true or false")


def _check_number(name: str, value: object, low: int, high: int, lowest: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgumentError(f"{name} is {shown(value)}; allowed: {lowest} to {high}")
