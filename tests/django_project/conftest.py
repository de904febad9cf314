"""The sample project, and the broker that it is on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.conftest import Served
from tests.django_project.place import Shop


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path / "data", retry_ms=1)
    yield found
    found.stop()


@pytest.fixture
def shop(tmp_path: Path, served: Served) -> Shop:
    return Shop(tmp_path, served.address)
