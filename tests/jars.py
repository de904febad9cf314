"""Jars that tests need and Maven fetches, once, into the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tarry.base.errors import NotFoundError


def fetched(pom: Path, name: str, pattern: str, place: str | None = None) -> Path:
    """The directory with what ``pom`` names: ``place``, or ``name`` in the cache. It is there where it has a file of
    this ``pattern``.

    Raises:
        NotFoundError: there is no Maven, and no jars.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = Path(place or cache / "tarry" / name)
    if any(directory.glob(pattern)):
        return directory
    if shutil.which("mvn") is None:
        raise NotFoundError(f"no {pattern} in {directory}, and no Maven (mvn) to fetch it with; install Maven")
    directory.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=directory.parent))
    # A copy of the pom, for Maven makes a directory beside it.
    shutil.copy(pom, fresh / "pom.xml")
    command = ["mvn", "-q", "-B", "-f", str(fresh / "pom.xml"), "dependency:copy-dependencies"]
    subprocess.run([*command, f"-DoutputDirectory={fresh}"], check=True, timeout=600)
    try:
        fresh.rename(directory)
    except OSError:  # another run was faster
        shutil.rmtree(fresh)
    return directory
