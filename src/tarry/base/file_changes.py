"""Finds out whether files were replaced, by looking at them now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

LOOK_S = 1.0
"""Seconds between two looks, which are made when somebody asks."""


class FileChanges:
    """Files, as they were at the last look. Missing ones are a state like any other. On one thread."""

    def __init__(self, paths: Iterable[str | Path], clock_s: Callable[[], float]) -> None:
        """Look for the first time; ``clock_s`` returns the time in seconds, of whichever beginning."""
        self._paths = tuple(paths)
        self._clock_s = clock_s
        self._looked_s = clock_s()
        self._stamp = self._stamp_now()

    def found(self) -> bool:
        """Return whether a file has changed since the last look; False if it is too early for another."""
        now_s = self._clock_s()
        if abs(now_s - self._looked_s) < LOOK_S:  # a clock may be set back
            return False
        self._looked_s = now_s
        before, self._stamp = self._stamp, self._stamp_now()
        return self._stamp != before

    def _stamp_now(self) -> list[tuple[int, ...]]:
        return [stamp_of(path) for path in self._paths]


def stamp_of(path: str | Path) -> tuple[int, ...]:
    """Return what changes when a file does; a missing one, or a path that is none, has a stamp, too."""
    try:
        stat = Path(path).stat()
    except OSError as error:
        return (error.errno or 0,)
    except ValueError:
        return ()
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
