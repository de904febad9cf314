"""Identities that a data directory had, and has lost: the start is refused before anything is written.

A broker that has lost their file would ask nobody who they are. One that has lost the key by which the secrets of
access keys are sealed cannot check signatures.
"""

from __future__ import annotations

from pathlib import Path

from tarry.api.operations import AddCredential, ReadAuditLog
from tarry.base.errors import CorruptError
from tarry.broker.access_secrets import has_lost_key, lost_key
from tarry.broker.audit_reading import read_lines
from tarry.broker.credential_days import FILE as DAYS_FILE
from tarry.broker.directory import Checkpoint
from tarry.identity.file import FILE, VERSION
from tarry.link.credentials import ADMIN_TOKEN_FILE
from tarry.log.json_file import read_json


def check_identities(data: Path, checkpoint: Checkpoint | None) -> None:
    """Refuse to start without the identities that a directory had.

    ``checkpoint``: None: it is missing.

    Raises:
        CorruptError: their file is missing, or damaged, or the key that their secrets are sealed by is missing.
    """
    path = data / FILE
    if (fields := read_json(path, [VERSION])) is not None:
        if has_lost_key(data, fields.get("sealed")):
            raise lost_key(data)
    elif (sign := _sign_of_identities(data, checkpoint)) is not None:
        raise CorruptError(
            f"{path} is missing, which had been there ({sign} tells so), and without it this broker would ask nobody "
            "who they are; restore it from a copy, or make the first identity again while the broker is stopped "
            "(tarry identity create --data)"
        )


def _sign_of_identities(data: Path, checkpoint: Checkpoint | None) -> str | None:
    """Return what says that a directory had identities; None: nothing does.

    ``checkpoint``: None: it is missing, so it may have been lost together with them. Then the audit log is read, too:
    all of it, if it tells of none.
    """
    if checkpoint is not None and FILE in checkpoint.small_files:
        return "checkpoint.json"
    for name in (ADMIN_TOKEN_FILE, DAYS_FILE):
        if (data / name).exists():
            return name
    made = ReadAuditLog(operation=AddCredential.wire.name, outcome="done", limit=1)
    if checkpoint is None and read_lines(data, made):
        return "the audit log"
    return None
