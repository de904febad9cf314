"""What a check is, and what it finds."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 1 << 20
"""Files are read in pieces of about so many bytes."""

_NOT_THE_DISK = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM)

Pace = Callable[[int], None]
"""Called with how many bytes were read since it was called last: shows progress, waits where it goes too fast, and may
raise to end the check.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a file that is not as it was written. ``offset`` in bytes, None where it is the whole file;
    ``meaning``: what follows from it; ``advice``: how to go on.
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
    """Something about a file that is worth telling, and no damage: a torn tail that a crash has left, say."""

    path: str
    what: str


Results = Iterator[Finding | Note]


@dataclass(frozen=True, slots=True)
class Check:
    """One file of some ``kind``, and about how many bytes are read to check it."""

    kind: str
    path: str
    bytes: int
    run: Callable[[Pace], Results]

    @classmethod
    def of_file(cls, kind: str, path: Path, run: Callable[[Pace], Results]) -> Check:
        """Of a local file, which may be deleted at any moment where a broker is at work."""
        return cls(kind, str(path), bytes_of(path), run)

    def results(self, pace: Pace) -> Results:
        """What is found. A file that the disk does not give back is damaged, too; one that was deleted meanwhile is
        passed over, since others tell which must be there.
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
    """How long a file is; 0 where it is not there, or not any more."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


RESTORE = "restore the file from a copy of the directory that was made before"
DERIVED = "remove the file: it is derived, and made again at the next start"
SALVAGE = (
    f"{RESTORE}; without one, salvage what `tarry dump --json` still reads (docs/operations.md, When a file is damaged)"
)
