"""Settings of consumer groups and topics: fields with a line of help each. Imports nothing slow.

A setting is defined here: a field of :class:`GroupFields`, its name in :class:`GroupOptions` (for editors and type
checkers), and its check in :class:`tarry.api.groups.GroupSettings`. Requests, clients and the command line take it from
here; ``tarry.groups`` carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from tarry.base.errors import InvalidArgumentError
from tarry.base.printable import shown

Start = Literal["earliest", "latest"]
"""Start of a new group: at the first message that is kept, or behind the last."""
EARLIEST: Start = "earliest"
LATEST: Start = "latest"
STARTS: tuple[Start, ...] = (EARLIEST, LATEST)

TRIES = 16
QUEUES_MAX = 1024


def setting(default: Any, text: str) -> Any:
    """Return a field for a setting: its default, and a line of help."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFields:
    """Settings of a group for its messages; ``docs/delivery-groups.md`` has more about each."""

    retry: str = setting("", "Back-off after a nack: 'fixed 1s', 'exponential 1s max 1h', 'list 10s 1m', rocketmq.")
    """The forms are those of :mod:`tarry.api.retry`; empty: fixed, the broker's ``retry_ms``."""
    tries: int = setting(TRIES, "How often a message is handed out before it is a dead letter; 0: no limit.")
    inflight_max: int = setting(0, "Messages leased at a time, over all consumers; 0: no limit but theirs.")
    max_per_second: int = setting(0, "Messages handed out a second, over all consumers; 0: no limit.")
    filter: str = setting("", "Which messages it wants: 'a || b' are tags; 'sql: price > 3'; '' is all.")
    """The languages are those of :mod:`tarry.message.filter`."""
    ordered: bool = setting(False, "Of each ordering key, one message at a time.")
    paused: bool = setting(False, "Nothing is handed out.")
    lease_ms: int = setting(0, "Lease of consumers that ask for none; 0: the broker's.")


class GroupOptions(TypedDict, total=False):
    """The settings of :class:`GroupFields` as arguments; None leaves one as it is."""

    retry: str | None
    tries: int | None
    inflight_max: int | None
    max_per_second: int | None
    filter: str | None
    ordered: bool | None
    paused: bool | None
    lease_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFields:
    """Settings for all groups of a topic: handling of late messages, and order."""

    late: str = setting("", "What becomes of late messages that do not say it: deliver, drop or dead; '' is drop.")
    lateness_ms_max: int = setting(-1, "How late a message without an expiry may be; -1 or none: any.")
    ordered: bool = setting(False, "All groups keep the order of ordering keys.")
    declared: bool = setting(False, "It is there before it has a message.")
    max_per_second: int = setting(0, "Messages that each group is handed a second, at most; 0: no limit.")
    queues: int = setting(0, "Its queues, to RocketMQ's clients; 0: as many as the broker's setting says.")


class TopicOptions(TypedDict, total=False):
    """The settings of :class:`TopicSettings` as arguments; None leaves one as it is."""

    late: str | None
    lateness_ms_max: int | None
    ordered: bool | None
    declared: bool | None
    max_per_second: int | None
    queues: int | None


def check_number(name: str, value: object, low: int, high: int, lowest: str) -> None:
    """Check a number against its bounds.

    Raises:
        InvalidArgumentError: ``value`` is no whole number from ``low``, which means ``lowest``, to ``high``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgumentError(f"{name} is {shown(value)}; allowed: {lowest} to {high}")
