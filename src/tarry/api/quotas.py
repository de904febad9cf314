"""Quotas: how much an identity may ask of a broker. What is not named is not limited.

| name | limit on |
|---|---|
| ``messages_per_second``, ``bytes_per_second`` | messages that it schedules, and their bytes |
| ``received_messages_per_second``, ``received_bytes_per_second`` | messages handed out to it, and their bytes |
| ``filter_ms_per_second`` | CPU time that conditions take to choose messages for it, in milliseconds |
| ``pending`` | pending messages in the topics to which it may produce |
| ``topics``, ``groups`` | topics to which it may produce, and groups for which it may consume |
| ``creations_per_minute`` | topics and groups that it makes |
| ``connections`` | its connections and streams to one process, but for those of HTTP |
| ``inflight_bytes`` | bytes of its batches that are on their way to the disk |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from tarry.base.errors import InvalidArgumentError

QUOTA_MAX = 1 << 53
"""Largest value: what JSON's readers know exactly."""
SENDING = ("messages_per_second", "bytes_per_second")
RECEIVING = ("received_messages_per_second", "received_bytes_per_second")
FILTERING = "filter_ms_per_second"
RATES = (*SENDING, *RECEIVING, FILTERING)
"""Limits that delay before they refuse."""
DELAY_S_MAX = 1.0
"""Longest delay of a request that does not wait itself.

What would have to wait longer is refused after it.
"""


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits of one identity; None: no limit."""

    messages_per_second: int | None = None
    bytes_per_second: int | None = None
    received_messages_per_second: int | None = None
    received_bytes_per_second: int | None = None
    filter_ms_per_second: int | None = None
    pending: int | None = None
    topics: int | None = None
    groups: int | None = None
    creations_per_minute: int | None = None
    connections: int | None = None
    inflight_bytes: int | None = None

    @classmethod
    def of(cls, limits: Mapping[str, int]) -> Quotas:
        """Return the quotas of limits by name.

        Raises:
            InvalidArgumentError: there is no such quota, or a value is not allowed.
        """
        for name, value in limits.items():
            if name not in QUOTAS:
                raise InvalidArgumentError(f"quota {name!r:.80}; allowed: {', '.join(QUOTAS)}")
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= QUOTA_MAX:
                raise InvalidArgumentError(f"quota {name} is {value!r:.80}; allowed: a whole number, 1 to {QUOTA_MAX}")
        return cls(**limits)

    def limits(self) -> dict[str, int]:
        """Return the limits by name, without those that are none."""
        return {name: value for name in QUOTAS if (value := getattr(self, name)) is not None}


QUOTAS = tuple(each.name for each in fields(Quotas))
"""Names of all quotas."""


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """The quotas of one identity, and what it uses of them in the broker's process."""

    identity: str
    quotas: dict[str, int]
    used: dict[str, int]
    """Counts by the name of the quota: pending, topics, groups, connections, inflight_bytes.

    Of a rate that is limited: what is used up of one second's worth; more than the limit: it is owed.
    """
    refused: dict[str, int] = field(default_factory=dict)
    """Requests that were refused since the start, by the name of the quota."""
    delayed_ms: int = 0
    """Time by which requests were delayed since the start, or during which consumers were held back."""
