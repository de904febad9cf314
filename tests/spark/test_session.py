"""The session that every job has: settings reach Spark by a file of one's own, and no command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from tarry.spark.runtime.session import _jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_no_setting_is_on_a_command_line(spark: SparkSession) -> None:
    """Each user of a machine can read the command lines of all processes, and a setting may be a secret."""
    jvm = _jvm()
    assert jvm is not None
    command = psutil.Process(jvm.pid).cmdline()
    assert "--properties-file" in command
    assert not [text for text in command if "spark.default.parallelism" in text or text == "--conf"]
    assert spark.sparkContext.getConf().get("spark.default.parallelism") == "2"
    assert "-Xmx512m" in command, "what the JVM itself needs to know is taken from the file, too"
