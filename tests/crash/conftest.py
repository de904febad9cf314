"""Where the crash tests work: in memory where there is such a place, since what a sync does is injected anyway."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.tools import World

MEMORY = Path("/dev/shm")


@pytest.fixture
def fast_path(tmp_path: Path) -> Iterator[Path]:
    """A directory whose fsync costs nothing, or ``tmp_path``."""
    try:
        directory = Path(tempfile.mkdtemp(prefix="tarry-test-", dir=MEMORY))
    except OSError:
        yield tmp_path
        return
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def w(tmp_path: Path) -> Iterator[World]:
    """A directory that is not open yet; what the test leaves open dies with it."""
    world = World(tmp_path)
    yield world
    world.crashed(None)
