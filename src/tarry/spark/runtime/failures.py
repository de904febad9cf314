"""Failures of Spark's, told in one line: what the cause was, and what to do about those of a first day."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

from tarry.spark.runtime.session import lost_jvm

CAUSE_CHARS_MAX = 500
WORKER_START_S = 10
"""Spark's own, fixed: so long a new Python worker may take to connect to the JVM."""

_TRACEBACK = "Traceback (most recent call last):"
_PYTHON = re.compile(r"[A-Za-z_][\w.]*(?::\s.*)?")
"""The line of a Python traceback that names the error, as far as it can be told from what stands between two."""


def one_line(error: object) -> str:
    """The line of an error that names its cause, at most 500 characters, and what to do about it, where that is known.
    Spark wraps it in pages of stack traces, in Python's and in Java's format. Where the JVM has ended, that is the
    cause.
    """
    if (ended := lost_jvm(error)) is not None:
        return ended
    text = str(error)
    cause = _cause(text)[:CAUSE_CHARS_MAX] or type(error).__name__
    advice = _advice(text)
    return cause if advice is None else f"{cause}; {advice}"


def _cause(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    java = [line.strip().lstrip(": ") for line in lines if line.lstrip().startswith((": ", "Caused by: "))]
    told = [line for line in java if not line.endswith(("Exception:", "Error:"))]  # what it says is on the next lines
    return next((causes[-1] for causes in (list(_python_errors(lines)), told, lines[:1]) if causes), "").strip()


def _python_errors(lines: list[str]) -> Iterator[str]:
    """The last line of each Python traceback, the cause of all behind those that came of it; and Tarry's errors, which
    Spark sometimes gives without their traceback.
    """
    indent: int | None = None  # of the traceback that is open: Spark indents what a worker wrote
    for line in lines:
        text = line.lstrip()
        if text.endswith(_TRACEBACK):
            indent = len(line) - len(text) if text == _TRACEBACK else 0
        elif text.startswith("tarry.") or (
            indent is not None and len(line) - len(text) <= indent and _PYTHON.fullmatch(text.rstrip())
        ):
            indent = None
            if not text.startswith("py4j."):  # which says that Java failed: why is in Java's words
                yield text


def _advice(text: str) -> str | None:
    python = os.environ.get("PYSPARK_PYTHON") or "python3"
    if "No module named" in text:
        return (
            f"the Python of Spark's workers is {python} (PYSPARK_PYTHON), where that is not installed; allowed: to "
            "leave PYSPARK_PYTHON out, or pip install 'tarry[spark]' there, in the version that runs here"
        )
    if "PYTHON_VERSION_MISMATCH" in text:
        version = ".".join(map(str, sys.version_info[:2]))
        return (
            f"the Python of Spark's workers is {python} (PYSPARK_PYTHON); allowed: a Python {version} with "
            "tarry[spark], as here, on each machine that has executors"
        )
    if "Cannot run program" in text:
        return (
            f"the Python of Spark's workers is {python} (PYSPARK_PYTHON); allowed: one that is there, with "
            "tarry[spark], on each machine that has executors"
        )
    if "failed to connect back" in text:
        return (
            f"a new Python worker did not answer within {WORKER_START_S} seconds, a limit of Spark's own: the machine "
            "is too busy, or short of memory; run less on it at a time, and try again"
        )
    if "JAVA_GATEWAY_EXITED" in text or "Java gateway process exited" in text:
        return (
            "Java did not start; its own words are above this in the log; allowed: Java 17 or newer (JAVA_HOME), and "
            "memory for it (spark_memory, --memory)"
        )
    return None
