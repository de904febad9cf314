"""The settings of a relay: plain data, which travels to any executor."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tarry.base.delay import DELAY_MS_MAX, ROCKETMQ_LEVELS
from tarry.base.errors import InvalidArgumentError

SHARDS_MAX = 64
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
TIMESTAMPS = ("source", "due", "now")
GUARANTEES = ("exactly-once", "at-least-once")


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """The settings of one relay. ``docs/cluster.md`` describes the effect of changing each."""

    kafka: str
    topics: str
    store: str
    name: str = "tarry"
    targets: tuple[str, ...] = ("{topic}-due",)
    delays: tuple[str, ...] = ()
    dead_letters: str = ""
    kafka_options: tuple[tuple[str, str], ...] = ()
    guarantee: str = "exactly-once"
    timestamp: str = "source"
    start: str = "earliest"
    shards: int = 2
    store_shard: int = 0
    near_ms: int = 250
    delay_ms_max: int = DELAY_MS_MAX
    delay_levels: str = ROCKETMQ_LEVELS
    batch_rows_max: int = 500_000
    direct_rows_max: int = 200_000
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        """Check the values.

        Raises InvalidArgumentError for a value that is not allowed.
        """
        _check_text("name", self.name, _NAME.fullmatch(self.name), "1 to 100 of A-Z a-z 0-9 . _ -")
        _check_text("guarantee", self.guarantee, self.guarantee in GUARANTEES, " or ".join(GUARANTEES))
        _check_text("timestamp", self.timestamp, self.timestamp in TIMESTAMPS, ", ".join(TIMESTAMPS))
        _check_text("start", self.start, self.start in ("earliest", "latest"), "earliest or latest")
        _check_text("kafka", self.kafka, self.kafka.strip(), "HOST:PORT, several with commas")
        _check_bounds(self, _BOUNDS)

    @property
    def exactly_once(self) -> bool:
        """True if Kafka is written to in transactions."""
        return self.guarantee == "exactly-once"

    @property
    def dead_topic(self) -> str:
        """The topic of records that cannot be scheduled or delivered."""
        return self.dead_letters or f"{self.name}-dead-letters"

    @property
    def marker_topic(self) -> str:
        """An empty topic whose partition ``n`` stands for shard ``n``.

        Kafka keeps offsets only of existing partitions.
        """
        return f"{self.name}-deliver-marker"

    @property
    def schedule_group(self) -> str:
        """The group whose offsets mark the records of the source topics that were sent on or read."""
        return f"{self.name}-schedule"

    @property
    def deliver_group(self) -> str:
        """The group whose offsets on :attr:`marker_topic` mark the progress of each shard's delivery."""
        return f"{self.name}-deliver"

    def fingerprint(self) -> str:
        """Return a short text that changes with the settings that decide which records are sent on at once.

        It also changes with those that send the same records on in another way.
        """
        decisive = [self.targets, self.delays, self.near_ms, self.delay_ms_max, self.delay_levels]
        return hashlib.blake2b(json.dumps(decisive).encode(), digest_size=6).hexdigest()

    def to_json(self) -> str:
        """Return the settings as text, for the options of a Spark source."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RelaySettings:
        """Return the settings of a text (inverse of :meth:`to_json`)."""
        data: dict[str, Any] = json.loads(text)
        data["targets"], data["delays"] = tuple(data["targets"]), tuple(data["delays"])
        data["kafka_options"] = tuple((name, value) for name, value in data["kafka_options"])
        return cls(**{field.name: data[field.name] for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a relay's run, which do not change the decision on any record."""

    checkpoint: Path
    master: str = "local[*]"
    memory: str = "1g"
    spark_conf: tuple[str, ...] = ()
    spark_conf_file: str = ""
    schedule_interval_ms: int = 500
    deliver_interval_ms: int = 50
    deliver_batch_ms: int = 600_000
    compact_interval_ms: int = 60_000
    status_interval_ms: int = 10_000

    def __post_init__(self) -> None:
        """Check the values.

        Raises InvalidArgumentError for a value that is not allowed.
        """
        _check_bounds(self, _RUN_BOUNDS)


_INTERVALS = ("schedule", "deliver", "compact", "status")
_BOUNDS = (
    ("shards", 1, SHARDS_MAX),
    ("store_shard", 0, 1 << 20),
    ("near_ms", 0, 10_000),
    ("delay_ms_max", 1, 1000 * 366 * 86_400_000),
    ("batch_rows_max", 1, 1 << 31),
    ("direct_rows_max", 0, 1 << 31),
    ("transaction_timeout_ms", 10_000, 3_600_000),
)
# A task that lives for less would do little more than take over its transactional id.
_RUN_BOUNDS = (("deliver_batch_ms", 1_000, 1 << 40), *((f"{name}_interval_ms", 1, 1 << 40) for name in _INTERVALS))


def _check_bounds(options: object, bounds: Iterable[tuple[str, int, int]]) -> None:
    for name, least, most in bounds:
        value = getattr(options, name)
        if not least <= value <= most:
            raise InvalidArgumentError(f"{name} is {value}; allowed: {least} to {most}")


def _check_text(name: str, value: str, good: object, allowed: str) -> None:
    if not good:
        raise InvalidArgumentError(f"{name} is {value!r}; allowed: {allowed}")
