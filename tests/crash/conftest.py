"""Where the crash tests work: in memory where there is such a place, since what a sync does is injected anyway."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.tools import World
from tests.faults import fast_directory


@pytest.fixture
def fast_path() -> Iterator[Path]:
    """A directory whose fsync costs nothing, if there is one."""
    directory = fast_directory()
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def w(tmp_path: Path) -> Iterator[World]:
    """A directory that is not open yet; what the test leaves open dies with it."""
    world = World(tmp_path)
    yield world
    world.crashed(None)
