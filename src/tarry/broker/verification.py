"""All checks of a data directory's files, and the lock that keeps a broker away meanwhile."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tarry.base.errors import CorruptError, LockedError, NotFoundError
from tarry.broker import access_tokens, audit_log, directory, front_state, hand_out_bound, push_file, test_clock
from tarry.broker.directory import ID_FILE, Checkpoint, owner_of, read_secret
from tarry.broker.hand_out_bound import check_bound
from tarry.broker.jobs import Jobs
from tarry.broker.small_files import missing_checks
from tarry.broker.topic_counts import VERSION as COUNTS_VERSION
from tarry.broker.topic_counts import path_of
from tarry.groups import settings_file
from tarry.identity.file import FILE as IDENTITIES_FILE
from tarry.identity.file import VERSION as IDENTITIES_VERSION
from tarry.log.chain import ChainEnd
from tarry.log.file_engine import LOCK_FILE
from tarry.log.files import OsFiles
from tarry.log.frame import LogKind
from tarry.log.json_file import read_json
from tarry.verify import Check
from tarry.verify.audit import AuditBounds, audit_checks
from tarry.verify.logs import log_checks
from tarry.verify.registry import registry_checks
from tarry.verify.small_files import front_state_checks, pipeline_checks, small_checks
from tarry.verify.store import owner_checks, store_checks

_SCRUB = "which checks its files by itself (setting scrub_bytes_per_s)"
JSON_VERSIONS: dict[str, tuple[int, ...]] = {
    "checkpoint.json": directory.VERSIONS,
    settings_file.FILE: (settings_file.VERSION,),
    access_tokens.FILE: (access_tokens.VERSION,),
    IDENTITIES_FILE: (IDENTITIES_VERSION,),
    push_file.FILE: (push_file.VERSION,),
    test_clock.FILE: (test_clock.VERSION,),
}


def json_versions(data: Path) -> dict[str, tuple[int, ...]]:
    """:data:`JSON_VERSIONS`, and those of the file that the checkpoint names."""
    try:
        found = read_json(data / "checkpoint.json", directory.VERSIONS) or {}
    except CorruptError:
        found = {}  # its own check tells
    number = found.get("topics")
    return JSON_VERSIONS if number is None else {**JSON_VERSIONS, path_of(data, number).name: (COUNTS_VERSION,)}


def own_front_state_checks(data: Path) -> Iterator[Check]:
    """Yield the checks of the small files that fronts have in a data directory."""
    paths = sorted((data / front_state.DIRECTORY).glob(front_state.PATTERN))
    yield from front_state_checks(paths, (front_state.VERSION,), (front_state.BARE_VERSION,))


@contextmanager
def held(data: Path, otherwise: str = _SCRUB) -> Iterator[None]:
    """No broker opens the directory meanwhile; several may look at the same time.

    ``otherwise``: what a broker that has it open does instead.

    Raises:
        NotFoundError: there is no such data directory. LockedError: a broker has it open.
    """
    lock = data / LOCK_FILE
    if not lock.exists():
        raise NotFoundError(f"{data} is no data directory: it has no file lock")
    descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            raise LockedError(
                f"{data} is in use by a broker, {otherwise}; allowed: a directory whose broker has stopped"
            ) from error
        yield
    finally:
        os.close(descriptor)


def plan_checks(data: Path, store_uri: str | None) -> Iterator[Check]:
    """Yield all checks of a directory that no broker has open, and of its store.

    ``store_uri`` None: that is not checked.
    """
    try:
        checkpoint = Checkpoint.read(data)
    except CorruptError:
        checkpoint = Checkpoint()  # its own check tells
    open_jobs = partial(Jobs, changes_min=checkpoint.jobs_changes)
    secret, bound = partial(read_secret, OsFiles(), data), partial(check_bound, data / hand_out_bound.FILE)
    yield from small_checks(data, json_versions(data), partial(owner_of, data), secret, bound, open_jobs)
    yield from own_front_state_checks(data)
    yield from missing_checks(data, checkpoint.small_files)
    yield from log_checks(data, LogKind.INTAKE, checkpoint.intake, checkpoint.intake_first)
    yield from log_checks(data, LogKind.READY, checkpoint.ready, checkpoint.ready_first)
    yield from log_checks(data, LogKind.ACKS, checkpoint.acks)
    yield from audit_log_checks(data)
    yield from registry_checks(data, checkpoint.registry_writes)
    if store_uri is not None:
        own_id = partial(_id_of, data)
        yield from store_checks(store_uri, checkpoint.store_version)
        yield from owner_checks(store_uri, data / ID_FILE, own_id)
    yield from pipeline_checks(data)


def _id_of(data: Path) -> str | None:
    return owner_of(data).id if (data / ID_FILE).exists() else None


def audit_log_checks(data: Path, *, in_use: bool = False) -> Iterator[Check]:
    """Yield the checks of the audit log in a data directory; ``in_use``: a broker writes it."""
    yield from audit_checks(data / audit_log.DIRECTORY, partial(_audit_bounds, data), in_use=in_use)


def _audit_bounds(data: Path) -> AuditBounds | None:
    head = audit_log.AuditHead.read(data)
    if head is None:
        return None
    first, end = ChainEnd(head.first, head.first_previous), ChainEnd(head.next, head.last)
    return AuditBounds(first, end, head.file, head.position)
