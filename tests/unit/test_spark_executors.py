"""A cluster that gives nothing is told of, after a while, and not any more when it does."""

from __future__ import annotations

import pytest

from tarry.spark.runtime.executors import PATIENCE_S, ExecutorWatch


def test_no_executor_is_told_after_a_while() -> None:
    now_s, waits = 100.0, True
    watch = ExecutorWatch("spark://m:7077", lambda: waits, lambda: now_s)
    assert watch.missing() is None
    now_s += PATIENCE_S - 1
    assert watch.missing() is None
    now_s += 1
    text = watch.missing()
    assert text is not None
    assert "spark://m:7077 has given no executor for 20 s" in text
    assert "spark.cores.max" in text
    waits = False
    assert watch.missing() is None
    waits = True
    assert watch.missing() is None
    now_s += PATIENCE_S
    assert watch.missing() is not None


def test_within_a_process_none_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    watch = ExecutorWatch.of(SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]")))  # type: ignore[arg-type]
    monkeypatch.setattr(watch, "_clock", lambda: 1e9)
    assert watch.missing() is None
