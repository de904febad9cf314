"""End of a command: the exit codes, and an expected error as one line on stderr."""

from __future__ import annotations

import sys
from enum import IntEnum

from tarry.base.errors import (
    CorruptError,
    DiskFullError,
    FatalError,
    FilterPausedError,
    ForbiddenError,
    InvalidArgumentError,
    KeyExistsError,
    LockedError,
    OverloadedError,
    OwnershipLostError,
    TarryError,
    UnauthenticatedError,
    UnavailableError,
)
from tarry.base.printable import printable


class ExitCode(IntEnum):
    """Stable across versions; ``docs/operations-running.md`` has the same table."""

    OK = 0
    FAILED = 1
    USAGE = 2
    LOCKED = 3
    CORRUPT = 4
    UNAVAILABLE = 5
    REFUSED = 6
    FATAL = 7
    NOT_DONE = 8
    FORBIDDEN = 9
    OWNERSHIP_LOST = 10
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "done; a server that was told to stop has stopped cleanly",
    ExitCode.FAILED: "failed for a reason that no other code names",
    ExitCode.USAGE: "wrong usage: an option, a setting, or a value in a message is not allowed; or the bucket of "
    "`log`, or of the store, refuses (a wrong key, region or name, a missing right)",
    ExitCode.LOCKED: "another broker has the data directory open, or owns the logs in the bucket and lives; or the "
    "store is another broker's; or a directory is a cache of a bucket, and `log` does not say so, or the other way "
    "round; or a directory is a backup, or was not restored to the end",
    ExitCode.CORRUPT: "a file of the data directory is damaged: refused unchanged at the start, or met while serving",
    ExitCode.UNAVAILABLE: "no answer: the broker is out of reach, starting or stopping; or an address cannot be "
    "used; or the bucket of `log`, or the store, cannot be reached",
    ExitCode.REFUSED: "refused for now (overloaded, a quota used up, disk full, filter paused): the same command may "
    "succeed later",
    ExitCode.FATAL: "the broker stopped, or did not start, because a disk failed it (a write or fsync did not succeed) "
    "or is mounted read-only; or it was told to stop, and the bucket of `log` gave no answer for 4 s: what was under "
    "way may be in the log or not",
    ExitCode.NOT_DONE: "not done: what to cancel, move or find was delivered, cancelled or not known; "
    "or a key was taken",
    ExitCode.FORBIDDEN: "not allowed: the broker asks who calls, and no token was shown, or it is not taken, or its "
    "identity has not the right",
    ExitCode.OWNERSHIP_LOST: "the broker stopped, for another one owns its logs now: it took over in the bucket, or "
    "the file `lock` of the data directory was deleted, or written by another broker; or a later owner of its log "
    "has the store: what was to be committed is not",
    ExitCode.INTERRUPTED: "interrupted from the keyboard",
}

_BY_ERROR: list[tuple[type[TarryError], ExitCode]] = [
    (KeyExistsError, ExitCode.NOT_DONE),  # before the class that it belongs to
    (InvalidArgumentError, ExitCode.USAGE),
    (UnauthenticatedError, ExitCode.FORBIDDEN),
    (ForbiddenError, ExitCode.FORBIDDEN),
    (LockedError, ExitCode.LOCKED),
    (CorruptError, ExitCode.CORRUPT),
    (UnavailableError, ExitCode.UNAVAILABLE),
    (OverloadedError, ExitCode.REFUSED),
    (DiskFullError, ExitCode.REFUSED),
    (FilterPausedError, ExitCode.REFUSED),
    (OwnershipLostError, ExitCode.OWNERSHIP_LOST),  # before the class that it belongs to
    (FatalError, ExitCode.FATAL),
]


def exit_code(error: TarryError) -> ExitCode:
    """Return the exit code of a command that failed with ``error``."""
    return next((code for cls, code in _BY_ERROR if isinstance(error, cls)), ExitCode.FAILED)


def report(code: str, text: str) -> None:
    """Say on stderr, in one line, what went wrong."""
    line = printable(" ".join(text.split()))
    sys.stdout.flush()
    print(f"tarry: {code}: {line}", file=sys.stderr, flush=True)  # noqa: T201
