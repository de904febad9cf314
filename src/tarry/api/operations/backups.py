"""Operations of a backup: the broker holds its files as they are, while somebody copies them."""

from __future__ import annotations

from dataclasses import dataclass

from tarry.api.backups import HeldFiles
from tarry.api.needs import OnBroker, Right
from tarry.api.operation import NOTHING, Action, Operation, data
from tarry.base.errors import InvalidArgumentError

PLACE_CHARS_MAX = 2000
"""Of the place of a backup: a path or URI."""


@dataclass(frozen=True, slots=True)
class BeginBackup(Operation[HeldFiles]):
    """Make a checkpoint, and hold all files as they are now. Nothing stops meanwhile.

    Everything that was acknowledged before is in them. One backup at a time.

    Raises:
        OverloadedError: another backup is under way; try again. InvalidArgumentError: the logs are in an object store.
        DiskFullError: there is no room for the copies of what is written in place.
    """

    wire = Action("begin-backup", "hold all files as they are now, to be copied", data(HeldFiles))
    needs = OnBroker(Right.ADMIN)


@dataclass(frozen=True, slots=True)
class ExtendBackup(Operation[None]):
    """Hold the files of a backup for as long again.

    Raises:
        NotFoundError: they are not held any more.
    """

    wire = Action("extend-backup", "hold the files of a backup on", NOTHING)
    needs = OnBroker(Right.ADMIN)
    backup: str


@dataclass(frozen=True, slots=True)
class EndBackup(Operation[None]):
    """End the hold of a backup's files.

    Raises:
        NotFoundError: they are not held any more: what was copied since may be incomplete.
    """

    wire = Action("end-backup", "let go of the files of a backup", NOTHING)
    needs = OnBroker(Right.ADMIN)
    backup: str


@dataclass(frozen=True, slots=True)
class RecordBackup(Operation[None]):
    """Say that a backup has ended well.

    The status and the metrics tell of the last one, also after a restart; one that is older changes nothing.
    ``at_ms`` is its moment (:attr:`tarry.api.backups.HeldFiles.at_ms`), ``place`` where it is, for people, ``bytes``
    the size of its files.

    Raises:
        InvalidArgumentError: a number is below 0, or ``place`` is empty or too long. DiskFullError: it could not be
            noted.
    """

    wire = Action("record-backup", "say that a backup has ended well", NOTHING)
    needs = OnBroker(Right.ADMIN)
    at_ms: int
    place: str
    bytes: int

    def __post_init__(self) -> None:
        if self.at_ms < 0 or self.bytes < 0:
            raise InvalidArgumentError(f"at_ms is {self.at_ms}, bytes {self.bytes}; allowed: 0 or more")
        if not 1 <= len(self.place) <= PLACE_CHARS_MAX:
            raise InvalidArgumentError(f"place has {len(self.place)} characters; allowed: 1 to {PLACE_CHARS_MAX}")
