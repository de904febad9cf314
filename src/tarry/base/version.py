"""This version of Tarry, as ``pyproject.toml`` has it, and the commit that it was built from."""

from __future__ import annotations

import subprocess
from pathlib import Path

VERSION = "0.1.0"
_PACKAGE = Path(__file__).resolve().parents[1]


def commit() -> str | None:
    """Return the commit of the wheel, or of the checkout that this runs from; None: it is not known."""
    built = _PACKAGE / "commit.txt"
    if built.exists():
        return built.read_text().strip()
    checkout = _PACKAGE.parents[1]
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
