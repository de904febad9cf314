"""Opening a data directory: the parts of a broker are made in order, after a clean stop and after a crash alike.

Lock → checkpoint → store → validate and cut the logs' tails → find what fired since the checkpoint → what arrived since
the checkpoint and was due before it → groups. The loader then brings the window from ``fired_until_ms`` on, without
what was found fired. Its time depends on the tail and the window, not on what is pending.
"""

from __future__ import annotations

from contextlib import ExitStack

import pyarrow as pa

from tarry.api.admission import Limits
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.delay import parse_levels
from tarry.base.placement import Placement
from tarry.base.types import Key
from tarry.broker.acceptance import Acceptance
from tarry.broker.bulk import Bulk
from tarry.broker.changes import Changes
from tarry.broker.commands.write_batch import Decisions
from tarry.broker.components import Components
from tarry.broker.consumers import Consumers
from tarry.broker.damage import Damage
from tarry.broker.directory import Checkpoint, DirectoryLock, read_secret
from tarry.broker.dispatcher import Dispatcher
from tarry.broker.health import Health
from tarry.broker.job_announcements import JobAnnouncements
from tarry.broker.jobs import Jobs
from tarry.broker.key_backfill import KeyBackfill
from tarry.broker.loops import Loops
from tarry.broker.pipeline import Pipeline
from tarry.broker.progress import Progress
from tarry.broker.publishing import Publisher
from tarry.broker.queries.cut import Places
from tarry.broker.queries.history import HistorySources
from tarry.broker.queries.lateness import Lateness
from tarry.broker.queries.messages import MessageFinder
from tarry.broker.queries.queries import Queries
from tarry.broker.queues import Queues
from tarry.broker.recovery import check_store, fired_since, open_registry, take_up_arrivals
from tarry.broker.scheduling import Scheduling
from tarry.broker.scrub import Scrub
from tarry.broker.series import Series
from tarry.broker.status import Status
from tarry.broker.store_view import StoreFollower, View
from tarry.groups import ConsumerGroups, GroupRegistry
from tarry.intake import Intake, IntakeWriter, Segments, Submission
from tarry.log.commit import GroupCommit, as_tarry_error
from tarry.log.files import Files
from tarry.names import Registry
from tarry.queue import Journal, ReadyLog
from tarry.store import Store
from tarry.wheel import Loader, Wheel


def open_components(
    config: Config, clock: Clock, files: Files, health: Health, *, threaded: bool, placement: Placement
) -> Components:
    """Open every part of a data directory, in order; on failure nothing stays open or locked.

    Raises:
        LockedError: another broker has it open. CorruptError: it is damaged.
    """
    with ExitStack() as undo:
        components = _open(config, clock, files, health, undo, threaded=threaded, placement=placement)
        undo.pop_all()
        return components


def _open(
    config: Config,
    clock: Clock,
    files: Files,
    health: Health,
    undo: ExitStack,
    *,
    threaded: bool,
    placement: Placement,
) -> Components:
    data = config.data
    lock = DirectoryLock(data)
    undo.callback(lock.release)
    checkpoint = Checkpoint.read(data)
    store = Store.open(config.store_uri, shard=config.shard, version_min=checkpoint.store_version)
    view = View(store.snapshot())
    secret = read_secret(files, data)
    jobs = Jobs(data, checkpoint.jobs_changes)
    registry = Registry(
        files,
        data / "registry",
        history_ms=config.retention_ms,
        dedupe_ms=config.dedupe_ms,
        cancelled_jobs=jobs.cancelled,
        placement=placement,
    )
    undo.callback(registry.close)
    next_seq = max(checkpoint.fired_seq, view.committed_seq)
    segments = Segments.open(files, data / "intake", next_seq=next_seq, durable=checkpoint.intake)
    intake = Intake(segments)
    undo.callback(intake.close)
    check_store(checkpoint, intake, view, config)
    lateness = Lateness(clock)
    damage = Damage()
    ready = ReadyLog(
        files,
        data / "ready",
        segment_bytes_max=config.segment_bytes_max,
        cache_bytes_max=config.ready_cache_bytes_max,
        place=checkpoint.ready,
        ends=checkpoint.offsets,
        stored_rows=checkpoint.stored_rows,
        on_append=lateness.on_queued,
        on_damage=damage.report,
    )
    undo.callback(ready.close)
    fired, fired_due_ms = fired_since(ready, checkpoint)
    wheel = Wheel(Key(checkpoint.fired_until_ms, 0), Key(fired_due_ms + 1, 0), jobs.cancelled)
    loader = Loader(
        wheel,
        intake,
        clock,
        view,
        horizon_ms=config.horizon_ms,
        bytes_max=config.wheel_bytes_max,
        cancelled=registry.cancelled_mask,
        on_damage=damage.report,
    )
    loader.exclude(fired, fired_due_ms)
    announcements = JobAnnouncements(jobs, loader, clock)
    decisions = Decisions(wheel, loader, registry, clock, config.retention_ms)

    def register(batch: pa.RecordBatch, plain: bool = False) -> None:
        """Take up what rows of the intake say of names, cancellations and bulk jobs: in order, and again after a
        crash. ``plain``: all of them are messages.
        """
        registry.apply(batch, plain=plain)
        if not plain:
            announcements.apply(batch)

    writer = IntakeWriter(
        segments,
        intake,
        segment_bytes_max=config.segment_bytes_max,
        secret=secret,
        publish=Publisher(wheel, loader.wake, config.wheel_bytes_max).publish,
        begin_batch=decisions.begin_batch,
        register=register,
    )
    commits: GroupCommit[Submission] = GroupCommit(
        "tarry-intake",
        writer.commit,
        lambda error, submissions: _refuse_all(health, error, submissions),
        weight_max=config.inflight_bytes_max,
        threaded=threaded,
        placement=placement,
    )
    undo.callback(commits.close)
    limits = Limits(
        config.delay_ms_max,
        config.body_bytes_max,
        config.properties_bytes_max,
        levels=parse_levels(config.delay_levels),
        repeat_ms_min=config.repeat_ms_min,
    )
    acceptance = Acceptance(config, files, health, wheel)
    scheduling = Scheduling(acceptance, commits, clock, limits, secret, dedupe=config.dedupe_ms > 0)
    series = Series(wheel, ready, scheduling.carry_out, missed_after_ms=config.missed_after_ms, threaded=threaded)
    dispatcher = Dispatcher(wheel, intake, ready, loader, series, clock, placement)
    group_registry = GroupRegistry()

    def sync_ready(ticket: int | None) -> None:
        ready.sync(ready.ticket() if ticket is None else ticket)

    journal = Journal(
        files,
        data / "acks",
        segment_bytes_max=config.segment_bytes_max,
        sync_ready=sync_ready,
        snapshot=group_registry.entries,
        on_fatal=health.fail,
        threaded=threaded,
        durable=checkpoint.acks,
        placement=placement,
    )
    undo.callback(journal.close)
    groups = ConsumerGroups.open(
        config, clock, files, ready, journal, group_registry, lateness.on_handed_out, scheduling.put
    )
    # Last: to open it changes files, and a directory that is refused is left as it was found.
    open_registry(registry, checkpoint, jobs.registry_writes, intake, view, clock.now_ms())
    take_up_arrivals(checkpoint, intake, registry, wheel, fired, register)
    # After it: where the crash came when the log told of the job and `jobs` did not know it yet, it does now. Taken for
    # one that is still to be told of, it would stay among the untaken, and the loader would bring it a second time.
    announcements.find_unannounced(store.bulk_number)
    # What they brought below `fired_until_ms` the loader would pass over.
    loader.take_up(view, announcements.to_load)
    announcements.hold_checkpoints()

    follower = StoreFollower(store, loader, announcements)
    places = Places(intake, wheel, loader, follower, registry)
    finder = MessageFinder(intake, wheel, loader, follower)
    changes = Changes(registry, finder, decisions, scheduling, clock, secret)
    progress = Progress(
        config,
        clock,
        files,
        checkpoint,
        dispatcher,
        intake,
        ready,
        groups,
        journal,
        registry,
        follower,
        jobs,
        announcements,
    )
    key_backfill = KeyBackfill(jobs, follower, registry, scheduling.carry_out, threaded=threaded)

    def take_up_news() -> None:
        follower.announce()
        if not threaded:
            follower.take_up()
            progress.delete_stored()
            loader.step()

    bulk = Bulk(
        jobs,
        store,
        follower,
        wheel,
        loader,
        registry,
        announcements,
        scheduling,
        acceptance,
        key_backfill,
        clock,
        limits,
        take_up_news,
        threaded,
    )
    pipeline = Pipeline(config, clock, intake, follower, jobs, progress, damage, follower.announce)
    scrub = Scrub(config, clock, files, follower, health.ending, damage.report)
    status = Status(
        clock, health, intake, ready, wheel, follower, progress, pipeline, lateness, damage, loader, scrub, registry
    )
    queries = Queries(
        config,
        clock,
        files,
        places,
        ready,
        groups,
        HistorySources(places, ready, groups, groups.dead_letters, finder, decisions.outcome_of, secret),
        lateness,
        acceptance,
        status.read,
    )
    loops = Loops(
        config, clock, health, segments, wheel, loader, dispatcher, series, ready, follower, progress, bulk, scrub
    )
    return Components(
        lock=lock,
        secret=secret,
        health=health,
        scrub=scrub,
        store=store,
        intake=intake,
        writer=writer,
        commits=commits,
        registry=registry,
        ready=ready,
        journal=journal,
        wheel=wheel,
        loader=loader,
        dispatcher=dispatcher,
        series=series,
        groups=groups,
        dead_letters=groups.dead_letters,
        jobs=jobs,
        lateness=lateness,
        acceptance=acceptance,
        scheduling=scheduling,
        changes=changes,
        consumers=Consumers(groups, config.lease_ms),
        queues=Queues(ready, intake),
        key_backfill=key_backfill,
        bulk=bulk,
        progress=progress,
        pipeline=pipeline,
        status=status,
        queries=queries,
        loops=loops,
    )


def _refuse_all(health: Health, error: BaseException, submissions: list[Submission]) -> None:
    health.fail(error)
    for submission in submissions:
        submission.refuse(as_tarry_error(error, "writing the intake"))
