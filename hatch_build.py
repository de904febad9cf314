"""The commit that a wheel is built from, as a file in it: `tarry --version` tells it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface[Any]):
    """Adds ``tarry/commit.txt`` to a wheel that is built in a checkout; an editable one asks the checkout."""

    _file: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file. ``version``: ``editable`` or ``standard``."""
        if version == "editable":
            return
        commit = os.environ.get("SOURCE_COMMIT") or _commit_of(self.root)
        if not commit:
            return  # from an archive, or without git
        self._file = Path(mkdtemp()) / "commit.txt"
        self._file.write_text(commit)
        build_data["force_include"][str(self._file)] = "tarry/commit.txt"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file, which is in the wheel."""
        if self._file is not None:
            rmtree(self._file.parent)


def _commit_of(root: str) -> str | None:
    command = ["git", "-C", root, "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
