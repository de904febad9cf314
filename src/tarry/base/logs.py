"""Where a process of ours logs: stderr, a line each."""

from __future__ import annotations

import logging
import sys


def log_to_stderr(*, verbose: bool = False, process: str | None = None) -> None:
    """Log what is worth knowing, with ``verbose`` more; ``process``: a name in each line, where several share stderr.
    Does nothing where the log has a handler already.
    """
    name = "%(name)s" if process is None else f"%(name)s [{process}]"
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format=f"%(asctime)s %(levelname)s {name}: %(message)s",
        stream=sys.stderr,
    )
