"""The files of a data directory, opened and checked against each other: the base of all other parts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.placement import Placement
from tarry.broker.access_tokens import AccessTokens
from tarry.broker.audit import AuditWriter
from tarry.broker.damage import Damage
from tarry.broker.directory import CHECKPOINT_FILE, Checkpoint, keep_id, owner_of, read_secret
from tarry.broker.disk_reserve import DiskReserve
from tarry.broker.early_store import EarlyStore
from tarry.broker.hand_out_bound import AHEAD_MS, FileBound, HandOutBound
from tarry.broker.health import Health
from tarry.broker.identities import Identities
from tarry.broker.identity_signs import check_identities
from tarry.broker.jobs import Jobs
from tarry.broker.leased_bound import LeasedBound
from tarry.broker.queries.lateness import Lateness
from tarry.broker.recovery import check_store
from tarry.broker.small_files import SmallFiles
from tarry.broker.store_view import View
from tarry.broker.test_clock import check_kind
from tarry.broker.topic_counts import TopicCounts
from tarry.broker.traces import SpanExport
from tarry.identity.issuers import Issuers
from tarry.intake import Intake, Segments
from tarry.log.engine import LogEngine
from tarry.log.file_engine import DIRECTORIES
from tarry.log.files import Files
from tarry.log.frame import LogKind
from tarry.log.permissions import check_permissions
from tarry.log.segment import list_segments
from tarry.names import Registry
from tarry.queue import ReadyLog
from tarry.store import Store, check_before_mending
from tarry.store.place import Place

log = logging.getLogger(__name__)

KEPT_BYTES_MAX = 1 << 20
KEPT_PART = 64
"""The ready log leaves this part of ``disk_free_bytes_min`` to acknowledgements and checkpoints."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Dependencies that all parts are made with: settings, clock, files, logs, and what they report to.

    ``undo`` closes what was opened if opening ends early. ``threaded``: parts have threads of their own; else they work
    when asked.
    """

    config: Config
    clock: Clock
    files: Files
    engine: LogEngine
    health: Health
    damage: Damage
    lateness: Lateness
    traces: SpanExport | None
    undo: ExitStack
    threaded: bool
    placement: Placement
    audited: bool = False
    """True if who changes what is written down."""

    @property
    def may_hand_out(self) -> Callable[[], bool] | None:
        """Function to ask before a hand-out; None: nobody can take the logs over."""
        return None if self.engine.shared is None else self.engine.shared.may_hand_out

    @property
    def confirm(self) -> Callable[[], None]:
        """Function to call before an outcome that no commit says.

        It returns when another owner of the logs cannot have known better, and raises OwnershipLostError if one may.
        """
        return (lambda: None) if self.engine.shared is None else self.engine.shared.confirm


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """The opened files.

    ``view``: the store as it was at the start. ``began_s``: the monotonic time at which the logs were its own.

    The registry is opened later, after everything else was accepted, because opening it changes files.
    """

    reserve: DiskReserve
    checkpoint: Checkpoint
    topic_counts: TopicCounts
    small_files: SmallFiles
    store: Store
    view: View
    secret: bytes
    access_tokens: AccessTokens
    identities: Identities
    audit: AuditWriter
    jobs: Jobs
    registry: Registry
    segments: Segments
    intake: Intake
    ready: ReadyLog
    bound: HandOutBound
    began_s: float


def open_files(around: Opened) -> OpenedFiles:
    """Open and check the files of a data directory.

    Raises:
        InvalidArgumentError: the directory is of another kind of clock.
        LockedError: another broker has the directory or the store. OwnershipLostError: a later owner of the logs has
        the store already. CorruptError: the directory is damaged, or it and the store do not fit. PermissionError: this
        process may not use what is in it; nothing was changed.
    """
    config, undo, engine = around.config, around.undo, around.engine
    issuers = Issuers.of(config, around.clock)  # settings that are refused leave no directory behind
    undo.callback(issuers.close)
    with closing(EarlyStore(config, engine)) as early:
        epoch = engine.claim()
        undo.callback(engine.release)
        return _open_claimed(around, issuers, early, epoch)


def _open_claimed(around: Opened, issuers: Issuers, early: EarlyStore, epoch: int) -> OpenedFiles:
    config, undo, engine, began_s = around.config, around.undo, around.engine, time.monotonic()
    check_permissions(config.data)
    check_kind(around.files, config.data, around.clock)
    has_checkpoint = _has_checkpoint(config.data, is_first=engine.shared is not None)
    checkpoint, topic_counts = Checkpoint.read_with_counts(config.data)
    small_files = SmallFiles(config.data, checkpoint.small_files)
    check_identities(config.data, checkpoint if has_checkpoint else None)
    reserve = DiskReserve(around.files, config)
    reserve.give_back()
    store = _open_store(around, checkpoint, None if engine.shared is None else epoch, early)
    view = View(store.read_snapshot())
    secret = read_secret(around.files, config.data)
    access_tokens = AccessTokens(around.files, around.clock, config.data)
    issuers.begin()
    identities = Identities(around.files, around.clock, config.data, issuers)
    undo.callback(identities.close)
    audit = AuditWriter.open(
        config,
        around.clock,
        engine.log(LogKind.AUDIT),
        around.files,
        around.health,
        around.damage.report,
        threaded=around.threaded,
        wanted=around.audited,
    )
    undo.callback(audit.close)
    issuers.listen(partial(_note_keys, audit, issuers))
    jobs = Jobs(config.data, checkpoint.jobs_changes, None if engine.shared is None else engine.shared.keep)
    registry = Registry(
        around.files,
        config.data / "registry",
        history_ms=config.retention_ms,
        dedupe_ms=config.dedupe_ms,
        cancelled_jobs=jobs.cancelled,
        placement=around.placement,
    )
    undo.callback(registry.close)
    next_seq = max(checkpoint.fired_seq, view.committed_seq)
    segments = Segments.open(
        engine.log(LogKind.INTAKE),
        next_seq=next_seq,
        durable=checkpoint.intake,
        first_seq=checkpoint.intake_first,
    )
    intake = Intake(segments)
    undo.callback(intake.close)
    check_store(checkpoint, intake, view, config)
    ready = _open_ready_log(around, checkpoint)
    undo.callback(ready.close)
    bound = _open_bound(around, is_new=intake.published_seq == 0)
    undo.callback(partial(bound.close, is_durable=False))
    return OpenedFiles(
        reserve,
        checkpoint,
        topic_counts,
        small_files,
        store,
        view,
        secret,
        access_tokens,
        identities,
        audit,
        jobs,
        registry,
        segments,
        intake,
        ready,
        bound,
        began_s,
    )


def _has_checkpoint(data: Path, *, is_first: bool) -> bool:
    """Return whether there is a checkpoint; if not, but there are messages, the log says what that means.

    ``is_first``: there need not be one, for logs are whole until there is.
    """
    path = data / CHECKPOINT_FILE
    if path.exists():
        return True
    if not is_first and any(list_segments(data / DIRECTORIES[kind]) for kind in (LogKind.INTAKE, LogKind.READY)):
        log.warning(
            "%s is missing, and there are messages: it was lost, or the broker was killed within its first second. "
            "All is recovered from the logs. Messages may come again, and other small files that are lost, too, are "
            "not missed; restore it from a copy if you have one, or look at tarry verify",
            path,
        )
    return False


def _open_store(around: Opened, checkpoint: Checkpoint, epoch: int | None, early: EarlyStore) -> Store:
    config = around.config
    owner = owner_of(config.data)
    place, version_min = Place.of(config.store_uri), checkpoint.store_version
    if place.local is not None:
        check_before_mending(place, config.shard, owner)  # a directory that is refused is left as it was found
    keep_id(around.files, config.data, owner)
    if (store := early.store(owner, epoch, version_min)) is not None:
        return store
    return Store.open(config.store_uri, shard=config.shard, version_min=version_min, owner=owner, epoch=epoch)


def _open_ready_log(around: Opened, checkpoint: Checkpoint) -> ReadyLog:
    config = around.config
    return ReadyLog(
        around.engine.log(LogKind.READY),
        around.files,
        segment_bytes_max=config.segment_bytes_max,
        cache_bytes_max=config.ready_cache_bytes_max,
        place=checkpoint.ready,
        first=checkpoint.ready_first,
        ends=checkpoint.offsets,
        stored_rows=checkpoint.stored_rows,
        kept_bytes=min(KEPT_BYTES_MAX, config.disk_free_bytes_min // KEPT_PART),
        on_append=around.lateness.on_queued,
        on_damage=around.damage.report,
    )


def _open_bound(around: Opened, *, is_new: bool) -> HandOutBound:
    if around.engine.shared is not None:
        return LeasedBound(around.engine.shared)
    return FileBound(
        around.files,
        around.config.data,
        around.clock.now_ms(),
        is_new=is_new,
        # Without threads the caller moves the clock, between two steps: nothing runs ahead.
        ahead_ms=AHEAD_MS if around.threaded else 0,
    )


def _note_keys(audit: AuditWriter, issuers: Issuers) -> None:
    """Have the audit log tell of a provider's new keys: whoever has them says who callers are."""
    for issuer in issuers.published:
        audit.refusals.reloaded("broker", issuer.reloaded())
