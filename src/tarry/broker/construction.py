"""Opens a data directory: makes the parts of a broker in order, after a clean stop and after a crash.

``opened_files``: lock → checkpoint → store → validate and cut the logs' tails. ``message_path``: find what fired since
the checkpoint → what arrived since the checkpoint and was due before it → groups. The loader then brings the window
from ``fired_until_ms`` on, without the messages that were found fired. The time this takes depends on the tail and the
window, not on the number of pending messages.

This module makes the remaining parts. Each stage makes some parts and hands them on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tarry.api.board import Board
from tarry.api.credential_uses import WORKERS_KEY
from tarry.api.operations import GetPending
from tarry.base.clock import Clock, StandingClock
from tarry.base.config import Config
from tarry.base.placement import Placement
from tarry.broker.backups import Backups
from tarry.broker.bulk import Bulk
from tarry.broker.changes import Changes
from tarry.broker.components import BrokerComponents
from tarry.broker.consumers import Consumers
from tarry.broker.damage import Damage
from tarry.broker.health import Health
from tarry.broker.job_cancelling import JobCancelling
from tarry.broker.key_backfill import KeyBackfill
from tarry.broker.last_backup import LastBackup
from tarry.broker.loops import Loops
from tarry.broker.message_path import MessagePath, make_message_path
from tarry.broker.minutes import Minutes
from tarry.broker.opened_files import Opened, OpenedFiles, open_files
from tarry.broker.pipeline import Pipeline
from tarry.broker.placed import PlacedMessages
from tarry.broker.progress import Checkpointer
from tarry.broker.push import Push
from tarry.broker.push_file import PushFile
from tarry.broker.queries.cut import Places
from tarry.broker.queries.history import HistorySources
from tarry.broker.queries.lateness import Lateness
from tarry.broker.queries.messages import MessageFinder
from tarry.broker.queries.queries import Queries
from tarry.broker.queues import Queues
from tarry.broker.scrub import Scrub
from tarry.broker.status import Status
from tarry.broker.store_view import StoreFollower
from tarry.broker.test_time import TestTime
from tarry.broker.traces import traces_of
from tarry.groups import ConsumerGroups
from tarry.identity.accounts import Existing
from tarry.log.engine import LogEngine
from tarry.log.files import Files, start_failure

log = logging.getLogger(__name__)


def open_components(
    config: Config,
    clock: Clock,
    files: Files,
    engine: LogEngine,
    health: Health,
    *,
    threaded: bool,
    placement: Placement,
    audited: bool = False,
) -> BrokerComponents:
    """Open every part of a data directory, in order; on failure nothing stays open or locked.

    Raises:
        LockedError: another broker has it open.
        CorruptError: it is damaged.
        DiskFullError, FatalError: something has to be written first, and cannot be.
    """
    with _named_failures(config.data), ExitStack() as undo:
        around = Opened(
            *(config, clock, files, engine, health, Damage(), Lateness(clock), traces_of(config), undo),
            threaded=threaded,
            placement=placement,
            audited=audited,
        )
        opened = open_files(around)
        path = make_message_path(around, opened)
        components = _assemble(around, opened, path)
        components.bulk.announce_before_serving(components.writer.commit)
        _tell_of_recovery(opened, path)
        undo.pop_all()
        return components


def _tell_of_recovery(opened: OpenedFiles, path: MessagePath) -> None:
    intake, checkpoint = opened.intake, opened.checkpoint
    took_s = time.monotonic() - opened.began_s
    read_again = intake.published_seq - max(checkpoint.fired_seq, intake.first_seq)
    fired = len(path.window.fired)
    ready = sum(topic.end - topic.first for topic in opened.ready.topics.values())
    log.info(
        "recovered in %.1f s: %d rows that were accepted since the checkpoint and %d that had fallen due were read "
        "again; %d messages are kept as ready",
        *(took_s, read_again, fired, ready),
    )


@contextmanager
def _named_failures(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise start_failure(error, directory) from error


@dataclass(frozen=True, slots=True)
class _Background:
    """Parts that work beside the message path: store follower, bulk jobs, checkpoints, pipeline, scrub."""

    follower: StoreFollower
    progress: Checkpointer
    key_backfill: KeyBackfill
    bulk: Bulk
    backups: Backups
    last_backup: LastBackup
    pipeline: Pipeline
    scrub: Scrub


def _make_background(around: Opened, opened: OpenedFiles, path: MessagePath) -> _Background:
    config, clock, files, jobs = around.config, around.clock, around.files, opened.jobs
    window, accepting, delivery = path.window, path.accepting, path.delivery
    follower = StoreFollower(opened.store, window.loader, window.announcements)
    progress = Checkpointer(
        config,
        clock,
        files,
        opened.checkpoint,
        opened.topic_counts,
        opened.small_files,
        opened.reserve,
        opened.bound,
        delivery.dispatcher,
        opened.intake,
        opened.ready,
        delivery.groups,
        delivery.journal,
        opened.registry,
        follower,
        jobs,
        window.announcements,
        window.wheel.lock,
        around.engine.shared,
    )
    key_backfill = KeyBackfill(
        jobs, follower, opened.registry, accepting.scheduling.carry_out, threaded=around.threaded
    )

    def take_up_news() -> None:
        follower.announce()
        if not around.threaded:
            follower.take_up()
            progress.delete_stored()
            window.loader.step()

    cancelling = JobCancelling(
        follower,
        window.wheel,
        window.loader,
        opened.registry,
        accepting.scheduling,
        clock,
        take_up_news,
        around.threaded,
    )
    bulk = Bulk(
        jobs,
        opened.store,
        follower,
        window.announcements,
        accepting.scheduling,
        accepting.acceptance,
        key_backfill,
        cancelling,
        clock,
        accepting.limits,
        accepting.bound,
        take_up_news,
        around.confirm,
    )
    pipeline = Pipeline(config, clock, opened.intake, follower, jobs, progress, around.damage, follower.announce)
    scrub = Scrub(config, clock, files, follower, around.health.ending, around.damage.report)
    backups = Backups(config, clock, around.engine, progress, bulk, jobs, opened.store)
    last_backup = LastBackup(config, clock, files, around.engine)
    return _Background(follower, progress, key_backfill, bulk, backups, last_backup, pipeline, scrub)


@dataclass(frozen=True, slots=True)
class _Queries:
    """Parts that answer queries, or change a message found by name."""

    changes: Changes
    placed: PlacedMessages
    status: Status
    queries: Queries


def _make_queries(
    around: Opened,
    opened: OpenedFiles,
    path: MessagePath,
    background: _Background,
    push: Push,
    board: Board,
) -> _Queries:
    clock, lateness, ready = around.clock, around.lateness, opened.ready
    decisions, groups, accepting = path.window.decisions, path.delivery.groups, path.accepting
    wheel, loader, follower = path.window.wheel, path.window.loader, background.follower
    places = Places(opened.intake, wheel, loader, follower, opened.registry)
    finder = MessageFinder(opened.intake, wheel, loader, follower)
    changes = Changes(opened.registry, finder, decisions, accepting.scheduling, clock, opened.secret, around.confirm)
    placed = PlacedMessages(finder, decisions.state_of, changes, ready, groups)
    status = Status(
        around.config,
        clock,
        around.health,
        opened.intake,
        ready,
        wheel,
        follower,
        background.progress,
        background.pipeline,
        lateness,
        around.damage,
        opened.small_files,
        loader,
        background.scrub,
        opened.registry,
        push,
        board,
        opened.audit,
        opened.identities,
        around.engine.shared,
        background.last_backup,
        around.traces,
    )
    history = HistorySources(places, ready, groups, groups.dead_letters, finder, decisions.state_of, opened.secret)
    queries = Queries(
        around.config,
        clock,
        around.files,
        places,
        ready,
        groups,
        history,
        lateness,
        accepting.acceptance,
        status.read_all,
    )
    return _Queries(changes, placed, status, queries)


def _make_minutes(around: Opened, opened: OpenedFiles, path: MessagePath, queries: Queries) -> Minutes:
    intake, ready = opened.intake, opened.ready
    return Minutes(
        around.config.data,
        around.clock,
        lambda: dict(intake.accepted),
        ready.ends,
        lambda: queries.pending(GetPending(next_due=False)),
        path.delivery.groups,
        around.lateness,
        around.threaded,
    )


def _make_loops(
    around: Opened, opened: OpenedFiles, path: MessagePath, background: _Background, minutes: Minutes
) -> Loops:
    return Loops(
        around.config,
        around.clock,
        around.health,
        opened.segments,
        path.window.wheel,
        path.window.loader,
        path.delivery.dispatcher,
        path.delivery.series,
        opened.ready,
        opened.bound,
        background.follower,
        background.progress,
        background.bulk,
        background.backups,
        background.scrub,
        minutes,
        opened.identities,
        around.engine,
    )


def _existing(queries: Queries, groups: ConsumerGroups) -> Existing:
    counts = queries.pending(GetPending(next_due=False))
    return Existing.of(counts, ((group.topic_name, group.name) for group in groups.all()))


def _assemble(around: Opened, opened: OpenedFiles, path: MessagePath) -> BrokerComponents:
    """Make the parts that only use existing parts, and return all of them together."""
    window, accepting, delivery = path.window, path.accepting, path.delivery
    groups = delivery.groups
    background = _make_background(around, opened, path)
    push = Push(PushFile(around.files, around.config.data), groups, around.config, around.clock)
    board = Board()
    opened.identities.days.elsewhere = partial(board.shown, WORKERS_KEY)
    asking = _make_queries(around, opened, path, background, push, board)
    minutes = _make_minutes(around, opened, path, asking.queries)
    opened.identities.accounts.count_existing = partial(_existing, asking.queries, groups)
    return BrokerComponents(
        engine=around.engine,
        secret=opened.secret,
        health=around.health,
        damage=around.damage,
        scrub=background.scrub,
        store=opened.store,
        intake=opened.intake,
        writer=accepting.writer,
        commits=accepting.commits,
        access_tokens=opened.access_tokens,
        identities=opened.identities,
        audit=opened.audit,
        registry=opened.registry,
        ready=opened.ready,
        bound=opened.bound,
        journal=delivery.journal,
        wheel=window.wheel,
        loader=window.loader,
        dispatcher=delivery.dispatcher,
        series=delivery.series,
        groups=groups,
        dead_letters=groups.dead_letters,
        push=push,
        board=board,
        jobs=opened.jobs,
        lateness=around.lateness,
        traces=around.traces,
        acceptance=accepting.acceptance,
        scheduling=accepting.scheduling,
        changes=asking.changes,
        placed=asking.placed,
        consumers=Consumers(groups, around.config.lease_ms),
        queues=Queues(opened.ready, opened.intake, around.may_hand_out),
        key_backfill=background.key_backfill,
        bulk=background.bulk,
        backups=background.backups,
        last_backup=background.last_backup,
        progress=background.progress,
        pipeline=background.pipeline,
        status=asking.status,
        queries=asking.queries,
        minutes=minutes,
        loops=_make_loops(around, opened, path, background, minutes),
        test_time=_make_test_time(around, path, push),
    )


def _make_test_time(around: Opened, path: MessagePath, push: Push) -> TestTime | None:
    clock, window, delivery = around.clock, path.window, path.delivery
    if not isinstance(clock, StandingClock):
        return None
    return TestTime(
        clock,
        around.files,
        around.config.data,
        window.wheel,
        window.loader,
        delivery.dispatcher,
        delivery.series,
        delivery.groups,
        push,
        around.health.check_serving,
    )
