"""``python -m tests.rabbitmq.slow_disk SECONDS serve …``: ``tarry serve …`` whose syncs take so long each.

A kill finds acknowledgements on their way then. In memory a sync takes no time, and it finds hardly any.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from tarry.cli.main import run


def slow_down(seconds: float) -> None:
    """Have each sync of this process wait for so long."""
    fdatasync = os.fdatasync

    def wait(fd: Any) -> None:
        time.sleep(seconds)
        fdatasync(fd)

    os.fdatasync = wait


if __name__ == "__main__":
    slow_down(float(sys.argv.pop(1)))
    sys.exit(run())
