"""Forgetting what is old, and that it costs nothing where there is nothing to forget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tarry.log.files import OsFiles
from tarry.message.schema import UNNUMBERED, cancellations, numbered
from tarry.names import NameEntry, Registry, digest_of_id
from tarry.names.encoding import name_of_id
from tarry.names.sweep import RIPE_MS

HISTORY_MS = 3_600_000
DEDUPE_MS = 600_000
NOW = 1_700_000_000_000


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    made = Registry(OsFiles(), tmp_path / "registry", history_ms=HISTORY_MS, dedupe_ms=DEDUPE_MS)
    yield made
    made.close()


def cancel(registry: Registry, due_ms: int, seq: int) -> None:
    """One more cancellation."""
    target = pa.RecordBatch.from_pydict({"seq": [seq], "due_ms": [due_ms], "topic": ["a"]})
    rows = cancellations(target, due_ms)
    assert rows.schema == UNNUMBERED
    registry.apply(numbered(rows, seq + 1))


def is_cancelled(registry: Registry, due_ms: int, seq: int) -> bool:
    return bool(registry.cancelled_mask(np.array([due_ms]), np.array([seq]))[0])


def test_a_sweep_that_finds_nothing_writes_nothing(registry: Registry) -> None:
    """Deletions of ranges slow every read down until they are merged away; a broker sweeps each second."""
    registry.put({name_of_id(digest_of_id("a", "1"), NOW, DEDUPE_MS): NameEntry(1, NOW, NOW)})
    cancel(registry, NOW, 5)
    before = registry._database._db.latest_sequence_number()  # noqa: SLF001 - nothing else shows a write
    for second in range(100):
        registry.sweep(NOW + 1000 * second, NOW + 1000 * second)
    assert registry._database._db.latest_sequence_number() == before  # noqa: SLF001 - nothing else shows a write
    assert list(registry.accepted_ids([digest_of_id("a", "1")], NOW).values()) == [NameEntry(1, NOW, NOW)]
    assert is_cancelled(registry, NOW, 5)


def test_ids_are_forgotten_slice_by_slice(registry: Registry) -> None:
    name = name_of_id(digest_of_id("a", "1"), NOW, DEDUPE_MS)
    registry.put({name: NameEntry(1, NOW, NOW)})
    registry.sweep(NOW, NOW + DEDUPE_MS)
    assert registry.get([name]) == [NameEntry(1, NOW, NOW)], "its window may not be over"
    registry.sweep(NOW, NOW + 3 * DEDUPE_MS)
    assert registry.get([name]) == [None]


def test_old_cancellations_are_forgotten_a_minute_at_a_time(registry: Registry) -> None:
    cancel(registry, NOW, 5)
    cancel(registry, NOW + RIPE_MS // 2, 7)
    registry.sweep(NOW + HISTORY_MS + RIPE_MS // 2, NOW)
    assert is_cancelled(registry, NOW, 5)
    registry.sweep(NOW + HISTORY_MS + RIPE_MS + 1, NOW)
    assert not is_cancelled(registry, NOW, 5)
    assert not is_cancelled(registry, NOW + RIPE_MS // 2, 7), "all that is old enough goes at once"
