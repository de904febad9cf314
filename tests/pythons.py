"""Other Pythons of this machine: those on the path, and those of pyenv."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def found(python: str) -> str | None:
    """Return a Python of this version (``python3.12``): on the path, or of pyenv."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    every = [shutil.which(python), *map(str, sorted(versions.glob(f"*/bin/{python}")))]
    return next((path for path in every if path is not None and _runs(path)), None)


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
