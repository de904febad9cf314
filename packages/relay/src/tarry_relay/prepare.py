"""Checks before the tasks start: the store, Kafka's markers and Spark's checkpoint must fit together.

The store holds how far Kafka was read, the markers in Kafka how far was delivered. A checkpoint that differs is
discarded; it is never needed. Markers ahead of the store belong to another store, and are refused.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tarry.base.errors import CorruptError, InvalidArgumentError
from tarry.spark.pipeline.checkpoint import numbered, planned_offset
from tarry_relay.clients import KafkaAdmin
from tarry_relay.deliver import marker_of, reached
from tarry_relay.files import Reached
from tarry_relay.markers import markers_of
from tarry_relay.positions import SourcePositions
from tarry_relay.rules import TopicRules
from tarry_relay.settings import RelaySettings
from tarry_relay.table import RelayStore
from tarry_relay.writer import KafkaWriters

log = logging.getLogger(__name__)

DEAD_BYTES_MAX = "104857600"
"""Dead letters are records that other topics refuse, with more headers."""


def prepare(settings: RelaySettings, store: RelayStore, checkpoint: Path) -> dict[int, Reached]:
    """Create the relay's topics, and check the state; return the places of shards that delivered before.

    Raises:
        InvalidArgumentError: the settings do not fit what was done with others before. CorruptError: the markers are of
        another store. UnavailableError: Kafka is away.
    """
    admin = KafkaAdmin(settings)
    TopicRules(settings).check(admin.partitions())
    admin.ensure_topic(settings.marker_topic, settings.shards)
    admin.ensure_topic(settings.dead_topic, 1, {"max.message.bytes": DEAD_BYTES_MAX})
    take_over(settings)
    check_rules(settings, admin, store)
    version = store.snapshot().version
    places = delivered(settings)
    check_places(settings, places, version)
    discard_unless(checkpoint / "schedule", lambda end, start: fits_store(end, start, store))
    return places


def take_over(settings: RelaySettings) -> None:
    """Take over all transactional ids.

    A driver or task that was left behind can commit nothing from now on.
    """
    if not settings.exactly_once:
        return
    # Side by side: each takes up to half a second, and until then consumers wait for transactions that were left open.
    ids = [(group, n) for group in (settings.deliver_group, settings.schedule_group) for n in range(settings.shards)]
    with ThreadPoolExecutor(len(ids), thread_name_prefix="tarry-relay-take-over") as pool:
        for future in [pool.submit(_take_over, settings, *one) for one in ids]:
            future.result()


def _take_over(settings: RelaySettings, group: str, shard: int) -> None:
    writers = KafkaWriters(settings, group)
    writers.of(shard)
    writers.close()


def check_rules(settings: RelaySettings, admin: KafkaAdmin, store: RelayStore) -> None:
    """Refuse settings other than those by which records of an unfinished batch were sent on.

    The two would divide the batch in different ways.
    """
    topics = admin.partitions()
    sources = [(t, p) for t in TopicRules(settings).sources(topics) for p in topics[t]]
    _, positions = store.positions_of(sources)
    for partition, marker in markers_of(settings, settings.schedule_group, sources).items():
        at = positions.get(partition)
        ahead = marker.offset is not None and at is not None and marker.data.get("number") == at.number
        if ahead and (marker.offset or 0) > (at.offset if at else 0):
            then = marker.data.get("rules")
            if then != settings.fingerprint():
                raise InvalidArgumentError(
                    f"the relay stopped in the middle of a batch ({partition[0]}/{partition[1]}) with other settings "
                    f"for targets, delays, --near or limits ({then}; now {settings.fingerprint()}); start it once "
                    "with the former ones, stop it, and then change them"
                )


def delivered(settings: RelaySettings) -> dict[int, Reached]:
    """Return the place up to which each shard has delivered.

    If there were more or fewer shards, the new ones get the place of the old. A relay that is stopped leaves all of
    them at one place; one that is killed may not.

    Raises:
        InvalidArgumentError: there were more or fewer, and they are not all at one place.
    """
    topic = settings.marker_topic
    count = len(KafkaAdmin(settings).partitions().get(topic, []))
    markers = markers_of(settings, settings.deliver_group, [(topic, shard) for shard in range(count)])
    marked = {shard: marker for (_, shard), marker in markers.items() if marker.offset is not None}
    if not marked:
        return {}
    places = {shard: reached(marker) or Reached(0, 0) for shard, marker in marked.items()}
    before = int(marked[min(marked)].data["shards"])  # the first shard exists, however many there are
    if before == settings.shards:
        return {shard: place for shard, place in places.items() if shard < settings.shards}
    return _reshard(settings, before, places)


def _reshard(settings: RelaySettings, before: int, places: Mapping[int, Reached]) -> dict[int, Reached]:
    """Give the new shards the place of the old ones.

    It must be one place: a partition changes its shard.
    """
    old = {places.get(shard) for shard in range(before)}
    if len(old) != 1 or None in old:
        raise InvalidArgumentError(
            f"shards is {settings.shards}, was {before}, and the {before} are not at one place; allowed: {before}. "
            "Start with that, stop it, and then change it"
        )
    [place] = old
    assert place is not None
    at = [(settings.marker_topic, shard) for shard in range(settings.shards)]
    writers = KafkaWriters(settings, settings.deliver_group)
    try:
        writers.of(0).commit({p: marker_of(place, settings.shards) for p in at})
    finally:
        writers.close()
    log.info("from %d to %d shards, at %s", before, settings.shards, place)
    return dict.fromkeys(range(settings.shards), place)


def check_places(settings: RelaySettings, places: Mapping[int, Reached], version: int) -> None:
    """Refuse markers of another store."""
    ahead = [place for place in places.values() if place.v > version]
    if ahead:
        raise CorruptError(
            f"Kafka says that version {ahead[0].v} of the store was delivered, but the store at {settings.store} is at "
            f"version {version}: it is another one, or was set back; use another --name, or bring back the store"
        )


def fits_store(end: Mapping[str, Any], start: Mapping[str, Any] | None, store: RelayStore) -> bool:
    """Return whether the store is at the end, or at the start, of the schedule query's last batch."""
    until = SourcePositions.from_json(end)
    _, at = store.positions_of(until.at)
    return at == dict(until.at) or (start is not None and at == dict(SourcePositions.from_json(start).at))


def discard_unless(directory: Path, fits: Callable[[dict[str, Any], dict[str, Any] | None], bool]) -> None:
    """Discard a query's checkpoint unless it ``fits``.

    ``fits`` gets its last offset and the one before (None: there is none).
    """
    if not directory.exists():
        return
    batches = numbered(directory / "offsets")
    end, start = (planned_offset(directory, batches[-n]) if len(batches) >= n else None for n in (1, 2))
    try:
        good = end is not None and (start is not None or len(batches) == 1) and fits(end, start)
    except (OSError, ValueError, LookupError, TypeError):
        good = False
    if not good:
        log.info("discarding the checkpoint %s: it does not fit the store and Kafka's markers", directory)
        shutil.rmtree(directory)
