"""Fixtures of the HTTP front's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.rest import Rest, serving


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A broker with the defaults."""
    with serving(tmp_path / "data") as place:
        yield place
