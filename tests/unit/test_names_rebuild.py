"""The registry made again: out of store and intake alike, before anything is served, and the log says how far it is."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from tests.crash.tools import World

from tarry.api.outcome import Outcome
from tarry.names import rebuild

MESSAGES = 60


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Messages and cancellations in the store and in the intake; the registry is gone."""
    w = World(tmp_path)
    w.open()
    stored = [i for n in range(MESSAGES // 2) for i in w.schedule("a", [7_200_000], key=f"k{n}")]
    w.cancel(stored[:10])
    w.pipeline_commits()
    w.b.step()
    fresh = w.schedule("a", [7_200_000] * (MESSAGES // 2))
    w.cancel(stored[10:15] + fresh[:5])
    w.b.step()
    assert w.b.status()["registry"] == {"in_use": True, "made_again_ms": None}
    w.b.close()
    shutil.rmtree(w.directory / "registry")
    return w


def test_the_first_list_and_count_are_whole(world: World) -> None:
    broker = world.open()
    page = broker.list_pending(topic="a", limit=1000)
    assert (page.rows.num_rows, page.cursor) == (MESSAGES - 20, None)
    assert [topic.pending for topic in broker.pending()] == [MESSAGES - 20]
    keyed = [broker.find_key("a", f"k{n}") is not None for n in range(MESSAGES // 2)]
    assert keyed == [False] * 15 + [True] * (MESSAGES // 2 - 15)
    handles = [world.handles[i] for i in sorted(world.cancelled)]
    assert set(broker.cancel_many(handles)) == {Outcome.CANCELLED}
    assert broker.status()["registry"] == {"in_use": True, "made_again_ms": world.clock.now_ms()}
    world.drain()
    world.b.close()


def test_the_log_says_how_far_it_is(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "REPORT_S", 0.0)
    with caplog.at_level(logging.WARNING):
        world.open()
    said = [record.message for record in caplog.records if record.name == rebuild.log.name]
    assert said[0].startswith("making the registry again from 2 files of the store, and the intake")
    world.b.close()
    assert [text for text in said if text.startswith("making the registry again: 1 of 2 files of the store, ")]
    assert said[-1].startswith("the registry was made again from ")


def test_it_is_not_made_again_twice(world: World) -> None:
    """Its writes are counted on from what had been durable, so that it has those of the checkpoint before."""
    made_again_ms = world.open().status()["registry"]["made_again_ms"]
    world.crashed(None)  # before there is another checkpoint
    world.clock.advance_ms(1000)
    assert world.open().status()["registry"] == {"in_use": True, "made_again_ms": made_again_ms}
    world.b.close()
