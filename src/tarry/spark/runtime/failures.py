"""Failures of Spark, told in one line: the cause, and advice for those of a first day."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

from tarry.base.errors import OwnershipLostError
from tarry.base.extras import how_to_install
from tarry.spark.runtime.session import lost_jvm

CAUSE_CHARS_MAX = 500
WORKER_START_S = 10
"""Seconds that a new Python worker may take to connect to the JVM; fixed in Spark."""

_TRACEBACK = "Traceback (most recent call last):"
_PYTHON = re.compile(r"[A-Za-z_][\w.]*(?::\s.*)?")
"""The line of a Python traceback that names the error, as far as its text shows."""


def one_line(error: object) -> str:
    """Return the line of an error that names its cause, at most 500 characters, and advice if known.

    Spark wraps it in pages of stack traces, in Python's and in Java's format. If the JVM has ended, that is the cause.
    """
    if (ended := lost_jvm(error)) is not None:
        return ended
    text = str(error)
    cause = _cause(text)[:CAUSE_CHARS_MAX] or type(error).__name__
    advice = _advice(text)
    return cause if advice is None else f"{cause}; {advice}"


def ownership_lost(line: str) -> OwnershipLostError | None:
    """Return the error that a line of :func:`one_line` names, if it is of this class; else None.

    So it is known again when it was raised in another process.
    """
    _, found, text = line.partition(f"{OwnershipLostError.__module__}.{OwnershipLostError.__name__}: ")
    return OwnershipLostError(text) if found else None


def _cause(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    java = [line.strip().lstrip(": ") for line in lines if line.lstrip().startswith((": ", "Caused by: "))]
    told = [line for line in java if not line.endswith(("Exception:", "Error:"))]  # its text is on the next lines
    return next((causes[-1] for causes in (list(_python_errors(lines)), told, lines[:1]) if causes), "").strip()


def _python_errors(lines: list[str]) -> Iterator[str]:
    """Yield the last line of each Python traceback, and Tarry's errors.

    The root cause is behind the errors that came of it. Spark sometimes gives Tarry's errors without their traceback.
    """
    indent: int | None = None  # of the open traceback: Spark indents the output of a worker
    for line in lines:
        text = line.lstrip()
        if text.endswith(_TRACEBACK):
            indent = len(line) - len(text) if text == _TRACEBACK else 0
        elif text.startswith("tarry.") or (
            indent is not None and len(line) - len(text) <= indent and _PYTHON.fullmatch(text.rstrip())
        ):
            indent = None
            if not text.startswith("py4j."):  # it only says that Java failed: the reason is in Java's words
                yield text


def _advice(text: str) -> str | None:
    python = os.environ.get("PYSPARK_PYTHON") or "python3"
    if "No module named" in text:
        return (
            f"the Python of Spark's workers is {python} (PYSPARK_PYTHON), where that is not installed; allowed: to "
            f"leave PYSPARK_PYTHON out, or, there, {how_to_install('spark')}, in the version that runs here"
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
