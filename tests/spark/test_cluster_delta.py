"""The table followed by Delta's own streaming reader, through compactions and expiry: each row comes once. Run by
``make spark-cluster``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.spark.runtime.java import find_java_home
from tests.unit.test_store_month import Month

from .delta_jars import delta_jars
from .exactness import LONG

pytestmark = [pytest.mark.spark, pytest.mark.rest, LONG, pytest.mark.timeout(1800)]

HERE = Path(__file__).with_name("delta")
STEPS = 24


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """It follows the table at ``tmp_path / "store"``."""
    command = [sys.executable, HERE / "reader.py", tmp_path / "store", tmp_path / "checkpoint", delta_jars()]
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "JAVA_HOME": str(find_java_home(tmp_path))}
    variables |= {"PYSPARK_PYTHON": str(command[0]), "SPARK_LOCAL_IP": "127.0.0.1"}
    month = Month(tmp_path / "store")  # a table must be there
    assert month.broker.seq == 0
    with (tmp_path / "reader.log").open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=variables, text=True, cwd=tmp_path
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def test_each_row_comes_once(reader: subprocess.Popen[str], tmp_path: Path) -> None:
    """The reader sees files sometimes before they are rewritten, and sometimes only what became of them."""
    month, seen = Month(tmp_path / "store"), Counter[int]()
    for step in range(STEPS):
        month.commit()
        if step % 3:
            seen.update(follow(reader, tmp_path))
        month.upkeep.round(threading.Event())
        if step % 6 == 5:
            month.deliver()
    seen.update(follow(reader, tmp_path))
    totals = month.upkeep.totals
    assert totals["rows_read"] > totals["rows_written"] > 0, "nothing was merged, or nothing left out"
    assert seen == Counter(range(month.broker.seq))


def follow(reader: subprocess.Popen[str], directory: Path) -> list[int]:
    """All that has come since."""
    to, out = reader.stdin, reader.stdout
    assert to is not None
    assert out is not None
    to.write("\n")
    to.flush()
    answer = out.readline()
    assert answer, (directory / "reader.log").read_text()[-3000:]
    return list(json.loads(answer))
