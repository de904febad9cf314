"""How many files of the store are rewritten at once, where no setting says it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tarry.base.config import Config
from tarry.spark.pipeline.compact import parse
from tarry.spark.pipeline.upkeep import UpkeepSettings, cores_for_upkeep


@pytest.mark.parametrize(
    ("master", "parallelism", "cores"),
    [("local[8]", 8, 1), ("spark://host:7077", 16, 8), ("spark://host:7077", 1, 1), ("yarn", 3, 1)],
)
def test_half_of_the_executors_cores(master: str, parallelism: int, cores: int) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master, defaultParallelism=parallelism))
    assert cores_for_upkeep(spark) == cores


def test_nothing_is_fixed_by_default() -> None:
    settings = UpkeepSettings.of(parse(["--flight", "localhost:7611"]))
    assert settings.tasks == UpkeepSettings().tasks == Config.model_fields["compact_tasks"].default == 0
