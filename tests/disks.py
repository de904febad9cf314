"""A small file system in memory, where we may mount one: a disk that is really full."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(directory: Path, size: str) -> Iterator[Path]:
    """Mount it for the block; the test is skipped where that is not allowed."""
    directory.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small tmpfs needs root")
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounting.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounting.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=False)


def resize(directory: Path, size: str) -> None:
    """Make room."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(directory)], check=True)
