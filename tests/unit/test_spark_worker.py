"""The end of a task in a Python worker of Spark's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tarry.spark.runtime import worker


def test_a_worker_goes_through_its_heap_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And never counts what it froze, which takes as long."""
    calls: list[str] = []

    class Collector:
        def __getattr__(self, name: str) -> Callable[[], int]:
            calls.append(name)
            return lambda: 0

    monkeypatch.setattr(worker, "gc", Collector())
    worker.freeze_once.cache_clear()
    for _ in range(3):
        worker.rest()
    worker.freeze_once.cache_clear()
    assert calls == ["collect", "freeze"]
