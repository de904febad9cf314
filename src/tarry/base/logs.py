"""Logging of Tarry's processes: to stderr, a line each, as text or as JSON.

How much and in what form are the settings ``log_level`` and ``log_format``. Processes without settings, and those that
a broker starts, have them from the environment (``TARRY_LOG_LEVEL``, ``TARRY_LOG_FORMAT``).
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tarry.base.errors import InvalidArgumentError
from tarry.base.printable import printable
from tarry.base.redaction import without_tokens

LEVEL, FORMAT = "TARRY_LOG_LEVEL", "TARRY_LOG_FORMAT"
LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
LEVEL_ALLOWED = f'{", ".join(LEVELS)}; by module behind it, as in "info,tarry.log=debug"'
SAME_S = 60.0
"""A warning that says the same is told so often."""
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,199}")


def parse_levels(text: str) -> dict[str, int]:
    """Return the level of each module of ``"info,tarry.log=debug"``; that of all others is under ``""``.

    Raises:
        InvalidArgumentError: it is no such text.
    """
    levels = {"": logging.INFO}
    for place, part in enumerate(text.split(",")):
        module, equals, level = part.strip().rpartition("=")
        if level not in LEVELS or (equals and not _MODULE.fullmatch(module)) or (place and not equals):
            raise InvalidArgumentError(f"log level {text[:200]!r}; allowed: {LEVEL_ALLOWED}")
        levels[module] = getattr(logging, level.upper())
    return levels


def log_to_stderr(
    *, verbose: bool = False, process: str | None = None, level: str | None = None, format: str | None = None
) -> None:
    """Log what is worth knowing, and more with ``verbose``.

    ``process``: a name in each line, where several share stderr. ``level`` and ``format``: the settings; None: those of
    the environment. Does nothing if the log has a handler already.

    Raises:
        InvalidArgumentError: the environment has a level or a format that is none.
    """
    levels = parse_levels(level or os.environ.get(LEVEL) or "info")
    form = format or os.environ.get(FORMAT) or FORMATS[0]
    if form not in FORMATS:
        raise InvalidArgumentError(f"{FORMAT} is {form[:200]!r}; allowed: {', '.join(FORMATS)}")
    if logging.root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(process) if form == "json" else _TextLines(process))
    handler.addFilter(Repetitions())
    logging.root.addHandler(handler)
    of_all = levels.pop("")
    logging.root.setLevel(logging.DEBUG if verbose else of_all)
    for module, each in levels.items():
        logging.getLogger(module).setLevel(each)


class _TextLines(logging.Formatter):
    """Lines that a terminal may be shown: what others wrote may be in them."""

    def __init__(self, process: str | None) -> None:
        name = "%(name)s" if process is None else f"%(name)s [{process}]"
        super().__init__(f"%(asctime)s %(levelname)s {name}: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return printable(without_tokens(super().format(record)), keep="\n\t")


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, process, message, and the traceback of an error."""

    def __init__(self, process: str | None = None) -> None:
        """Make it. ``process``: its name, else its number."""
        super().__init__()
        self._process = process or str(os.getpid())

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": self._process,
            "message": without_tokens(record.getMessage()),
        }
        if record.exc_info:
            fields["traceback"] = without_tokens(self.formatException(record.exc_info))
        return json.dumps(fields)


@dataclass
class Repetitions:
    """A filter of a handler: a warning that says the same as one a moment ago is counted, and not told.

    The next one after that tells how many there were. Errors with a traceback are always told.
    """

    now_s: Callable[[], float] = time.monotonic
    known_max: int = 1000
    _told: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)
    """The time at which each was told last, and the number that came since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is told."""
        if record.levelno < logging.WARNING or record.exc_info:
            return True
        key, now_s = (record.name, record.getMessage()), self.now_s()
        told_s, repeated = self._told.pop(key, (-SAME_S, 0))
        is_told = now_s - told_s >= SAME_S
        self._told[key] = (now_s, 0) if is_told else (told_s, repeated + 1)
        while len(self._told) > self.known_max:
            del self._told[next(iter(self._told))]
        if is_told and repeated:
            record.msg, record.args = f"{key[1]} (and {repeated} times more in {now_s - told_s:.0f} s)", ()
        return is_told


def environment(level: str, format: str) -> Mapping[str, str]:
    """Return the variables by which other processes log in the same way."""
    return {LEVEL: level, FORMAT: format}
