"""What the settings of a relay may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarry.errors import InvalidArgumentError
from tarry_relay.settings import RelaySettings, RunOptions


@pytest.mark.parametrize(
    ("name", "value"), [("shards", 0), ("near_ms", 10_001), ("batch_rows_max", 0), ("transaction_timeout_ms", 9_999)]
)
def test_what_a_relay_does_has_bounds(name: str, value: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} is {value}; allowed: "):
        RelaySettings(kafka="k:9092", topics="t", store="s", **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"), [("deliver_batch_ms", 999), ("deliver_interval_ms", 0), ("status_interval_ms", -1)]
)
def test_how_it_is_run_has_bounds(name: str, value: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} is {value}; allowed: "):
        RunOptions(Path("checkpoint"), **{name: value})  # type: ignore[arg-type]
