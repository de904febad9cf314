"""Spark's errors for a log line: it wraps one in pages of stack traces, in Python's and in Java's format."""

from __future__ import annotations


def one_line(error: object) -> str:
    """The line of an error that names its cause, at most 500 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if line.startswith(("tarry.", "OSError", "RuntimeError", "pyarrow."))]
    java = [line.lstrip(": ") for line in lines if line.startswith((": ", "Caused by: "))]
    return next((causes[-1] for causes in (python, java, lines[:1]) if causes), type(error).__name__)[:500]
