"""Sources of others that no package registry has: clones of their repositories, each at one commit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class NoSourceError(Exception):
    """A source, or what builds it, cannot be had here. Says what, and what is allowed instead."""


def clone(url: str, commit: str, place: Path, instead: str) -> Path:
    """Clone a repository into ``place``, at a commit, and give that back.

    Args:
        instead: how its source is given where it cannot be cloned.

    Raises:
        NoSourceError: it cannot be cloned, or has no such commit.
    """
    quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    for command in (["clone", "--quiet", url, str(place)], ["-C", str(place), "checkout", "--quiet", commit]):
        done = subprocess.run(["git", *command], env=quiet, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().rpartition("\n")[2]
            raise NoSourceError(f"{url} cannot be had at {commit[:10]} ({said}); allowed: {instead}")
    return place
