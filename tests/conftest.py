"""Settings of all tests, and what holds for each of them."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from .s3 import s3_endpoint, s3_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["s3_endpoint", "s3_uri"]

settings.register_profile("default", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

FDS = Path("/proc/self/fd")
MEMORY = Path("/dev/shm")
MEMORY_FREE_BYTES_MIN = 8 << 30

# What is fsynced in a test is there after the kill of a process, in memory as on a disk; power is never cut here. In
# memory it takes no time, and two workers do not wait for one disk.
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_FREE_BYTES_MIN:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
# Spark in tests runs for seconds: the second compiler of a JVM would take more time than its code saves.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    """A log, a lock or a Parquet file that a test leaves open is a leak."""
    before = _data_files()
    yield
    if _data_files() - before:
        gc.collect()
        left = _data_files() - before
        assert not left, f"left open: {sorted(left)}"


def _data_files() -> set[tuple[str, str]]:
    found = set()
    for entry in FDS.iterdir() if FDS.is_dir() else []:
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.removesuffix(" (deleted)").endswith((".log", ".idx", "/lock", ".parquet")):
            found.add((entry.name, target))
    return found


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Here, and nowhere else: two fixtures would share one JVM, and both would end it.
    from tarry.spark.runtime.session import build_session, end_jvm

    session = build_session(
        name="tests", master="local[2]", memory="512m", work=tmp_path_factory.mktemp("spark") / "work"
    )
    yield session
    session.stop()
    end_jvm()
