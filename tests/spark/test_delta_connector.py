"""The default PySpark has both: ``format("tarry")`` and Delta's own connector, in one session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..contract.conftest import Served
from .delta_jars import delta_jars

pytestmark = [pytest.mark.spark, pytest.mark.long]

BOTH = Path(__file__).with_name("delta") / "both.py"


def test_one_session_has_both(tmp_path: Path) -> None:
    jars = delta_jars()
    served = Served(tmp_path / "data")
    try:
        command = [sys.executable, BOTH, served.address, served.config.store_uri, jars]
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout.splitlines()[-1]) == {"written": 100, "pending": 100, "stored": 100}
    finally:
        served.stop()
