"""Fixtures of the MQTT front's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mqtt.place import Mqtt, serving


@pytest.fixture
def mqtt(tmp_path: Path) -> Iterator[Mqtt]:
    """A broker with the defaults."""
    with serving(tmp_path / "data") as place:
        yield place
