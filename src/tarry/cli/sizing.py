"""Disk, memory and requests of a broker under a load, computed from measured constants.

``make bench ONLY=size_constants`` measured them; they are in ``size_constants.json`` beside this file. What follows
from the formats and the settings is computed here. docs/sizing.md says what is counted, and what of it was compared
with a broker that runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tarry.base.config import Config
from tarry.base.delay import DELAY_MS_MAX
from tarry.base.errors import InvalidArgumentError
from tarry.broker.disk_reserve import RESERVE_BYTES
from tarry.cli.frame import GET_DOLLARS, MONTH_MS, PUT_DOLLARS

OTHER_FILES = 20
"""Settings, checkpoint, the groups' journal and the like."""
FACTOR = 2.0
"""Disk and memory of a broker are between the estimate by this and times this."""
GIB_MONTH_DOLLARS = 0.023
"""Price of a GiB for a month at S3 (us-east-1, standard)."""
STANDBY_GETS_PER_S, STANDBY_LISTS_PER_S = 5.0, 0.1
"""Requests of a standby beside an owner; one GET more for each round (docs/high-availability.md)."""
STORE_WRITES = 6.0
"""Times that the store writes a message, with the upkeep's merges.

5 to 8 in a simulated month (docs/upkeep.md).
"""
STORE_FILE_BYTES = 8 << 20
"""Files of one commit have so much or more, by docs/formats-store.md."""
MEASURED_PER_S = 1000.0
"""The rate at which the constants of steady loads were measured."""
MONTH_S = MONTH_MS / 1000
LIMITS: dict[str, tuple[float, float]] = {
    "per_second": (0, 10_000_000),
    "bytes": (0, 128 << 20),
    "delay_ms": (0, DELAY_MS_MAX),
    "longest_ms": (0, DELAY_MS_MAX),
    "batch": (1, 1_000_000),
    "groups": (0, 10_000),
    "lag_ms": (0, DELAY_MS_MAX),
    "retention_ms": (0, DELAY_MS_MAX),
    "dedupe_ms": (0, DELAY_MS_MAX),
    "store_retention_ms": (0, DELAY_MS_MAX),
    "request_ms": (1, 60_000),
    "log_interval_ms": (0, 1000),
    "standbys": (0, 100),
    "loop_s": (0.01, 100),
}


@cache
def constants() -> dict[str, float]:
    """Return the measured constants by name; units are the names' ends."""
    document = json.loads((Path(__file__).parent / "size_constants.json").read_text())
    return {name: float(value) for name, value in document["constants"].items()}


def _default(name: str) -> int:
    return int(Config.model_fields[name].default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A load, and how the broker is set up for it."""

    per_second: float
    bytes: float
    """Of a message: body, topic, tag, properties, id and key."""
    delay_ms: int
    """Mean delay."""
    longest_ms: int | None = None
    """Longest delay that is usual; None: as the mean."""
    batch: int = 1
    """Messages that are sent together."""
    groups: int = 1
    """Consumer groups of a topic; without any, due messages are kept for the retention."""
    lag_ms: int = 0
    """Distance of the slowest group behind what is due."""
    retention_ms: int = _default("retention_ms")
    ids: bool = False
    dedupe_ms: int = _default("dedupe_ms")
    keys: bool = False
    pipeline: bool = True
    store_retention_ms: int = _default("store_retention_ms")
    log_objects: bool = False
    request_ms: int = 60
    """Duration of a request to the object store."""
    log_interval_ms: int = 0
    standbys: int = 0
    loop_s: float = 1.0
    """Speed of a core: seconds that it takes for 20 million steps of a loop of Python."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            InvalidArgumentError: one is not allowed; says which are.
        """
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InvalidArgumentError(f"{name} is {value}; allowed: {low} to {high}")
        if self.standbys and not self.log_objects:
            raise InvalidArgumentError("standbys without --log objects; allowed: with it")
        if self.longest_ms is not None and self.longest_ms < self.delay_ms:
            raise InvalidArgumentError(
                f"longest_ms is {self.longest_ms}, less than the mean delay; allowed: {self.delay_ms} and more"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The estimate, when the load has gone on for longer than the delay and all retentions."""

    pending: int
    intake_bytes: int
    ready_bytes: int
    names_bytes: int
    segments_bytes: int
    """Part of the logs' files that nobody needs any more, at most: they are deleted as a whole."""
    store_bytes: int
    disk_bytes: int
    """Of each machine, with the store if that is not in a bucket."""
    bucket_bytes: int
    """Logs and store, where they are in a bucket."""
    memory_bytes: int
    """Of the broker and its pipeline."""
    broker_cores: float
    """Of the broker's process, without the fronts' workers.

    More than one is more than a process of Python has.
    """
    pipeline_cores: float
    files: int
    """On disk."""
    requests_month: int
    request_dollars_month: float
    storage_dollars_month: float
    factor: float = FACTOR


def estimate(load: Workload) -> Size:
    """Return what a broker takes for a load."""
    pending = load.per_second * load.delay_ms / 1000
    intake = _in_intake_s(load) * (_intake_per_s(load) + load.per_second * constants()["index_row_bytes"])
    ready = _kept_s(load) * load.per_second * (load.bytes + constants()["ready_row_bytes"])
    names = _names(load, pending)
    segments = (2 + bool(load.groups)) * _default("segment_bytes_max") if load.per_second else 0
    store = _store(load, pending)
    logs = intake + ready + names + segments
    in_bucket = logs + store if load.log_objects else 0
    puts, gets = _requests_per_s(load)
    broker_cores, pipeline_cores = _cores(load)
    return Size(
        pending=int(pending),
        intake_bytes=int(intake),
        ready_bytes=int(ready),
        names_bytes=int(names),
        segments_bytes=segments,
        store_bytes=int(store),
        disk_bytes=int(logs if load.log_objects else logs + store),
        bucket_bytes=int(in_bucket),
        memory_bytes=int(_memory(load, ready)),
        broker_cores=round(broker_cores, 3),
        pipeline_cores=round(pipeline_cores, 3),
        files=_log_files(intake + ready) + (0 if load.log_objects else _store_files(load, store)) + OTHER_FILES,
        requests_month=int((puts + gets) * MONTH_S),
        request_dollars_month=round((puts * PUT_DOLLARS + gets * GET_DOLLARS) * MONTH_S, 2),
        storage_dollars_month=round(in_bucket / (1 << 30) * GIB_MONTH_DOLLARS, 2),
    )


def _in_intake_s(load: Workload) -> float:
    """Return how long a message is in the intake: until the store has it, or until it is due.

    Segments are deleted in their order. So without the pipeline one message that is due late keeps all behind it.
    """
    longest_s = (load.delay_ms if load.longest_ms is None else load.longest_ms) / 1000
    if not load.pipeline:
        return longest_s
    # Of what is committed, the intake keeps nothing; a commit is made of an interval, and takes its time.
    return min(longest_s, 2 * _default("schedule_interval_ms") / 1000)


def _kept_s(load: Workload) -> float:
    """Return how long a message is ready: until the slowest group has it, or for the retention."""
    return min(load.lag_ms if load.groups else load.retention_ms, load.retention_ms) / 1000


def _intake_per_s(load: Workload) -> float:
    c = constants()
    # Calls that come while a frame is written share the next one.
    frames = min(load.per_second / load.batch, c["intake_frames_per_s"])
    return load.per_second * (load.bytes + c["row_bytes"]) + frames * c["frame_bytes"]


def _names(load: Workload, pending: float) -> float:
    """Return the registry of ids and keys, and the room that is reserved for it."""
    c = constants()
    ids = load.per_second * 2 * load.dedupe_ms / 1000 * load.ids
    keys = (pending + load.per_second * load.retention_ms / 1000) * load.keys
    return ids * c["id_bytes"] + keys * c["key_bytes"] + (RESERVE_BYTES if ids or keys else 0)


def _has_store(load: Workload) -> bool:
    return load.pipeline and load.delay_ms > _default("horizon_ms")


def _store(load: Workload, pending: float) -> float:
    """Return what is pending, and what was replaced or has expired within the retention."""
    if not _has_store(load):
        return 0.0
    replaced = STORE_WRITES * load.per_second * load.store_retention_ms / 1000
    return (pending + replaced) * (load.bytes + constants()["store_row_bytes"])


def _memory(load: Workload, ready: float) -> float:
    c = constants()
    horizon_s = min(load.delay_ms, _default("horizon_ms")) / 1000
    wheel = min(load.per_second * horizon_s * (load.bytes + c["row_bytes"]), _default("wheel_bytes_max"))
    cached = min(ready, _default("ready_cache_bytes_max"))
    return c["memory_bytes"] + wheel + cached + c["pipeline_memory_bytes"] * load.pipeline


def _cores(load: Workload) -> tuple[float, float]:
    """Return the cores of the broker, and of its pipeline.

    Calls and hand-outs that share a round cost less: the cost is between that at the measured rate, where each has a
    round of its own, and that of a full stream.
    """
    c = constants()
    core_us = 1e6 / load.loop_s
    rate, calls = load.per_second, load.per_second / load.batch
    call_us = _between(c["cpu_call_busy_loop_us"], c["cpu_call_loop_us"], calls)
    out_us = _between(c["cpu_out_busy_loop_us"], c["cpu_out_loop_us"], rate)
    used_us = c["cpu_idle_loop_us"] + rate * (c["cpu_row_loop_us"] + load.groups * out_us) + calls * call_us
    stored = rate * STORE_WRITES if _has_store(load) else 0.0
    pipeline_us = c["pipeline_idle_loop_us"] + stored * c["pipeline_row_loop_us"] if load.pipeline else 0.0
    return used_us / core_us, pipeline_us / core_us


def _between(busy_us: float, alone_us: float, per_second: float) -> float:
    share = min(1.0, MEASURED_PER_S / max(per_second, 1.0))
    return busy_us + max(0.0, alone_us - busy_us) * share


def _log_files(used: float) -> int:
    """Return segments, each with its index; the one being written of intake and ready log too."""
    return 2 * (int(used / _default("segment_bytes_max")) + 2)


def _store_files(load: Workload, store: float) -> int:
    if not store:
        return 0
    days = load.delay_ms / 86_400_000
    # Some of each size in each bucket: of an hour for a day, of a day beyond.
    merged = store / _default("compact_file_bytes") + 4 * (24 + days)
    interval_s = _default("schedule_interval_ms") / 1000
    commits = min(load.store_retention_ms / 1000 / interval_s, load.per_second * load.store_retention_ms / 1000)
    commit_bytes = load.per_second * load.bytes * interval_s
    # Those of a commit, their record of checksums, the log's entry and its record; and what they are merged into.
    return int(merged + commits * (2 * max(1.0, commit_bytes / STORE_FILE_BYTES) + 2))


def _requests_per_s(load: Workload) -> tuple[float, float]:
    """Return PUTs (and LISTs) and GETs a second."""
    if not load.log_objects:
        return 0.0, 0.0
    c = constants()
    # All logs share a round. It waits for requests; what comes meanwhile shares the next one.
    rounds_max = c["log_puts_request"] * 1000 / load.request_ms
    if load.log_interval_ms:
        rounds_max = min(rounds_max, 1000 / load.log_interval_ms)
    wanted = c["log_idle_puts_per_s"] + c["log_puts_call"] * load.per_second / load.batch
    rounds = max(c["log_idle_puts_per_s"], min(wanted, rounds_max))
    puts = rounds + load.standbys * STANDBY_LISTS_PER_S
    gets = max(c["log_idle_gets_per_s"], rounds * c["log_gets_per_put"])
    return puts, gets + load.standbys * (STANDBY_GETS_PER_S + rounds)
