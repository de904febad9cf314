"""Starts Spark's JVM with its settings in a file, not on its command line.

PySpark puts all settings on the command line, which each user of the machine can read; the file can be read by this
user alone, and is deleted when the JVM has read it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from tarry.spark.runtime.conf import write_private

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})


def start_jvm(settings: Mapping[str, str], file: Path) -> None:
    """Start the JVM of this process, unless there is one, with these settings by way of ``file``."""
    from pyspark import SparkContext

    write_private(file, java_properties(settings))
    before = os.environ.get(_ARGUMENTS)
    # Given a file, Spark reads the machine's spark-defaults.conf only when it is told to.
    given = f"--load-spark-defaults --properties-file {shlex.quote(str(file))}"
    os.environ[_ARGUMENTS] = f"{given} {before or 'pyspark-shell'}"
    try:
        SparkContext._ensure_initialized()  # noqa: SLF001 - other calls that start it pass the settings as arguments
    finally:
        if before is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = before
        file.unlink(missing_ok=True)


def java_properties(settings: Mapping[str, str]) -> str:
    """Return the text of a file that Java reads as these settings.

    Names are Spark's, without spaces.
    """
    return "".join(f"{_name(name)}={_value(value)}\n" for name, value in settings.items())


def _name(name: str) -> str:
    return "".join(f"\\{letter}" if letter in "\\:= #!" else letter for letter in name)


def _value(value: str) -> str:
    text = value.translate(_ESCAPES)
    return f"\\{text}" if text.startswith(" ") else text
