"""Changes of Python files, for ``tarry work --reload``: by watchfiles where that is installed."""

from __future__ import annotations

import importlib
import os
import threading
from importlib.util import find_spec
from pathlib import Path

from tarry.base.file_changes import stamp_of

PASSED_OVER = {"node_modules", "site-packages", "__pycache__", "build", "dist"}
"""Directories that are not looked into, as virtual environments and those that begin with a dot."""


class SourceChanges:
    """Python files, as they were at the last look."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._watched = _Watched(root) if find_spec("watchfiles") is not None else None
        self._stamps = {} if self._watched is not None else self._look()

    def found(self) -> bool:
        """Return whether a file was changed, made or deleted since the last call."""
        if self._watched is not None:
            return self._watched.found()
        before, self._stamps = self._stamps, self._look()
        return self._stamps != before

    def close(self) -> None:
        """Look no more."""
        if self._watched is not None:
            self._watched.close()

    def _look(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for directory, below, names in os.walk(self._root):
            below[:] = [each for each in below if not _is_passed_over(Path(directory, each))]
            paths = (f"{directory}/{name}" for name in names if name.endswith(".py"))
            found |= {path: stamp_of(path) for path in paths}
        return found


class _Watched:
    """The kernel tells, and a thread hears it."""

    def __init__(self, root: Path) -> None:
        self._watchfiles = importlib.import_module("watchfiles")
        self._stop, self._seen = threading.Event(), threading.Event()
        self._root = root
        threading.Thread(target=self._watch, name="tarry-reload", daemon=True).start()

    def found(self) -> bool:
        if not self._seen.is_set():
            return False
        self._seen.clear()
        return True

    def close(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        chosen = self._watchfiles.PythonFilter()
        for _ in self._watchfiles.watch(self._root, watch_filter=chosen, stop_event=self._stop, raise_interrupt=False):
            self._seen.set()


def _is_passed_over(directory: Path) -> bool:
    return directory.name.startswith(".") or directory.name in PASSED_OVER or (directory / "pyvenv.cfg").exists()
