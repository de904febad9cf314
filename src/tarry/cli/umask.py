"""Permissions of the files that a serving process writes, and those that are copied of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

UMASK = 0o027
"""Whatever it was before: directories 0750 and files 0640, those of the embedded databases, too."""


@contextmanager
def umask() -> Iterator[None]:
    """Have :data:`UMASK` meanwhile, in all threads of the process."""
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)
