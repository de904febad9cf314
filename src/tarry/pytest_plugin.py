"""Fixtures for users' tests, found by pytest; they import nothing before one is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tarry.testing import TestBroker


@pytest.fixture
def tarry_broker(tmp_path: Path) -> Iterator[TestBroker]:
    """Provide the real broker on a temporary directory, with a clock that the test moves.

    The clock stands still until :meth:`tarry.testing.TestBroker.advance`. For other settings use
    :func:`tarry.testing.open_broker`.
    """
    from tarry.testing import open_broker

    with open_broker(tmp_path / "tarry") as broker:
        yield broker
