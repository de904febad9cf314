"""Logging of Tarry's processes: to stderr, a line each."""

from __future__ import annotations

import logging
import sys

from tarry.base.printable import printable
from tarry.base.redaction import without_tokens


def log_to_stderr(*, verbose: bool = False, process: str | None = None) -> None:
    """Log what is worth knowing, and more with ``verbose``.

    ``process``: a name in each line, where several share stderr. Does nothing if the log has a handler already.
    """
    name = "%(name)s" if process is None else f"%(name)s [{process}]"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(f"%(asctime)s %(levelname)s {name}: %(message)s"))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


class _Formatter(logging.Formatter):
    """Lines that a terminal may be shown: what others wrote may be in them."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(without_tokens(super().format(record)), keep="\n\t")
