"""Operations of a backup: the broker holds its files as they are, while somebody copies them."""

from __future__ import annotations

from dataclasses import dataclass

from tarry.api.backups import HeldFiles
from tarry.api.needs import OnBroker, Right
from tarry.api.operation import NOTHING, Action, Operation, data


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
