"""Identities that a data directory had, and has lost: the start is refused before anything is written.

A broker that has lost their file would ask nobody who they are. One that has lost the key by which the secrets of
access keys are sealed cannot check signatures.
"""

from __future__ import annotations

from pathlib import Path

from tarry.api.operations import AddCredential, ReadAuditLog
from tarry.base.errors import CorruptError
from tarry.broker.access_secrets import has_lost_key, lost_key
from tarry.broker.audit_log import DIRECTORY, HEAD_FILE
from tarry.broker.audit_reading import read_lines
from tarry.broker.credential_days import FILE as DAYS_FILE
from tarry.broker.directory import Checkpoint
from tarry.broker.verification import audit_log_checks
from tarry.identity.file import FILE, VERSION
from tarry.link.credentials import ADMIN_TOKEN_FILE
from tarry.log.json_file import read_json
from tarry.verify.check import Finding

_TOLD = "which had been there ({} tells so)"


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
            f"{path} is missing, {sign}, and without it this broker would ask nobody who they are; restore it from a "
            "copy, or make the first identity again while the broker is stopped (tarry identity create --data)"
        )


def _sign_of_identities(data: Path, checkpoint: Checkpoint | None) -> str | None:
    """Return in words why a directory may have had identities; None: nothing says so.

    ``checkpoint``: None: it is missing, so it may have been lost together with them. Then the audit log is read, too:
    all of it, if it tells of none. One that is damaged may have told.
    """
    if checkpoint is not None and FILE in checkpoint.small_files:
        return _TOLD.format("checkpoint.json")
    for name in (ADMIN_TOKEN_FILE, DAYS_FILE):
        if (data / name).exists():
            return _TOLD.format(name)
    return _by_audit_log(data) if checkpoint is None else None


def _by_audit_log(data: Path) -> str | None:
    made = ReadAuditLog(operation=AddCredential.wire.name, outcome="done", limit=1)
    try:
        if read_lines(data, made):
            return _TOLD.format("the audit log")
        damage = _damage_of(data)
    except CorruptError as error:
        damage = str(error)
    if damage is None:
        return None
    way_out = f"if there were no identities, move {data / DIRECTORY} away"
    return f"which may have been there: the audit log, which would tell, is damaged ({damage}; {way_out})"


def _damage_of(data: Path) -> str | None:
    # What a crash has torn off was not durable yet; that is known by the log's head alone.
    may_be_torn = (data / HEAD_FILE).exists()
    for check in audit_log_checks(data):
        for result in check.results(lambda _: None):
            if isinstance(result, Finding):
                return f"{result.path}: {result.what}"
            if not may_be_torn:
                return f"{data / HEAD_FILE} is missing, and lines behind it"
    return None
