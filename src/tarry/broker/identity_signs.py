"""Signs that a data directory had identities.

A broker that has lost their file would ask nobody who they are.
"""

from __future__ import annotations

from pathlib import Path

from tarry.api.operations import AddCredential, ReadAuditLog
from tarry.broker.audit_reading import read_lines
from tarry.broker.credential_days import FILE as DAYS_FILE
from tarry.broker.directory import Checkpoint
from tarry.identity.file import FILE
from tarry.link.credentials import ADMIN_TOKEN_FILE


def sign_of_identities(data: Path, checkpoint: Checkpoint | None) -> str | None:
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
