"""Checks and their findings."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 1 << 20
"""Files are read in pieces of about this many bytes."""

_NOT_THE_DISK = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM)

Pace = Callable[[int], None]
"""Called with the number of bytes read since the last call.

Shows progress, waits if reading goes too fast, and may raise to end the check.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """Content of a file that is not as it was written.

    ``offset`` is in bytes, None for the whole file. ``meaning`` says what follows from it, ``advice`` how to go on.
    """

    path: str
    offset: int | None
    what: str
    meaning: str
    advice: str

    def __str__(self) -> str:
        at = "" if self.offset is None else f" at offset {self.offset}"
        return f"{self.path}{at}: {self.what}. {self.meaning} To go on: {self.advice}"


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth reporting about a file that is no damage, such as a torn tail left by a crash."""

    path: str
    what: str


Results = Iterator[Finding | Note]


@dataclass(frozen=True, slots=True)
class Check:
    """The check of one file of some ``kind``, which reads about ``bytes`` bytes."""

    kind: str
    path: str
    bytes: int
    run: Callable[[Pace], Results]

    @classmethod
    def of_file(cls, kind: str, path: Path, run: Callable[[Pace], Results]) -> Check:
        """Return the check of a local file, which a running broker may delete at any moment."""
        return cls(kind, str(path), bytes_of(path), run)

    def results(self, pace: Pace) -> Results:
        """Run the check, and yield its results.

        A file that the disk cannot read is damaged, too. A file that was deleted meanwhile is skipped: other checks
        know which files must exist.
        """
        try:
            yield from self.run(pace)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in _NOT_THE_DISK:
                raise
            meaning = "What is in it is not known."
            yield Finding(self.path, None, f"it cannot be read: {error.strerror or error}", meaning, RESTORE)


def bytes_of(path: Path) -> int:
    """Return the length of a file in bytes; 0 if it does not exist, or no longer."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


RESTORE = "restore the file from a copy of the directory that was made before"
DERIVED = "remove the file: it is derived, and made again at the next start"
SALVAGE = (
    f"{RESTORE}; without one, salvage what `tarry dump --json` still reads (docs/operations.md, When a file is damaged)"
)
