"""``tarry serve`` with its pipeline while the store is away for a minute; run by ``make spark-cluster``. The same
of the relay is in ``tests/kafka/test_faults.py``.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tarry.client import Client
from tests.waiting import wait_until

from .cluster_serving import PATIENCE_S, Waves, pipeline, serving, wait_committed
from .exactness import LONG

pytestmark = [pytest.mark.spark, pytest.mark.rest, LONG, pytest.mark.timeout(900)]

AWAY_S = 60.0


def test_the_store_is_away_for_a_minute(tmp_path: Path) -> None:
    """What is sent meanwhile is accepted and waits in the intake, what falls due in the store comes late; the job says
    what is wrong, and goes on by itself.
    """
    store, away = tmp_path / "store", tmp_path / "away"
    settings: dict[str, str | int] = {"store": str(store), "spark_master": "local[2]"}
    with serving(tmp_path, settings) as address, Client(address, timeout=60) as client:
        waves = Waves(client)
        waves.send()
        wait_committed(client, waves.rows)
        committed = waves.rows
        store.rename(away)  # a link to nowhere is what nobody can make a directory of
        store.symlink_to(tmp_path / "nowhere")
        since = time.monotonic()
        waves.send()
        wait_until(lambda: pipeline(client).get("error"), PATIENCE_S, lambda: pipeline(client))
        wait_until(lambda: time.monotonic() - since >= AWAY_S, 2 * AWAY_S)
        assert client.status()["store"]["committed_seq"] == committed
        store.unlink()
        away.rename(store)
        wait_committed(client, waves.rows)
        waves.check()
        wait_until(lambda: not pipeline(client).get("error"), PATIENCE_S, lambda: pipeline(client))
