"""The parts that a message passes, from a producer's rows to consumers, made in this order.

They are given the rows that arrived since the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tarry.base.delay import parse_levels
from tarry.base.types import Int64s, Key
from tarry.broker.acceptance import Acceptance
from tarry.broker.commands.write_batch import Decisions
from tarry.broker.dispatcher import Dispatcher
from tarry.broker.health import Health
from tarry.broker.job_announcements import JobAnnouncements
from tarry.broker.opened_files import Opened, OpenedFiles
from tarry.broker.publishing import WheelPublisher
from tarry.broker.recovery import fired_since, open_registry, take_up_arrivals
from tarry.broker.scheduling import Scheduling
from tarry.broker.series import Series
from tarry.broker.topic_bound import TopicBound
from tarry.broker.traces import recorder_of
from tarry.groups import ConsumerGroups, GroupRegistry
from tarry.intake import IntakeWriter, Submission
from tarry.log.commit import GroupCommit, as_tarry_error
from tarry.log.frame import LogKind
from tarry.message.admission import MessageLimits
from tarry.queue import Journal
from tarry.wheel import Loader, PerhapsHanded, Wheel


@dataclass(frozen=True, slots=True)
class LoadedWindow:
    """Messages due within the horizon. ``fired``: seqs fired since the checkpoint, ascending."""

    wheel: Wheel
    loader: Loader
    announcements: JobAnnouncements
    decisions: Decisions
    fired: Int64s


def _make_window(around: Opened, opened: OpenedFiles) -> LoadedWindow:
    config, clock, checkpoint, registry = around.config, around.clock, opened.checkpoint, opened.registry
    fired, fired_due_ms = fired_since(opened.ready, checkpoint)
    wheel = Wheel(
        Key(checkpoint.fired_until_ms, 0), Key(fired_due_ms + 1, 0), opened.jobs.cancelled, _perhaps_handed(opened)
    )
    loader = Loader(
        wheel,
        opened.intake,
        clock,
        opened.view,
        horizon_ms=config.horizon_ms,
        bytes_max=config.wheel_bytes_max,
        cancelled=registry.cancelled_mask,
        on_damage=around.damage.report,
    )
    loader.exclude(fired, fired_due_ms)
    announcements = JobAnnouncements(opened.jobs, loader, clock)
    decisions = Decisions(wheel, loader, registry, clock, config.retention_ms)
    return LoadedWindow(wheel, loader, announcements, decisions, fired)


def _perhaps_handed(opened: OpenedFiles) -> PerhapsHanded:
    # Of the version that was opened: attempts are committed by the broker alone, so no later one was handed out.
    number_end = max(opened.jobs.next_number(), (opened.store.read_bulk_number() or 0) + 1)
    return PerhapsHanded(opened.bound.left_ms, opened.intake.published_seq, number_end)


@dataclass(frozen=True, slots=True)
class Accepting:
    """The way of rows into the intake.

    ``register`` takes up what the rows say of names, cancellations and bulk jobs.
    """

    register: Callable[[pa.RecordBatch, bool], None]
    writer: IntakeWriter
    commits: GroupCommit[Submission]
    limits: MessageLimits
    acceptance: Acceptance
    bound: TopicBound
    scheduling: Scheduling


def _make_accepting(around: Opened, opened: OpenedFiles, window: LoadedWindow) -> Accepting:
    config, shared = around.config, around.engine.shared
    on_fatal = partial(_refuse_all, around.health)

    def register(batch: pa.RecordBatch, plain: bool = False) -> None:
        # In order, and again after a crash. `plain`: all rows are messages.
        opened.registry.apply(batch, plain=plain)
        if not plain:
            window.announcements.apply(batch)

    writer = IntakeWriter(
        opened.segments,
        opened.intake,
        segment_bytes_max=config.segment_bytes_max,
        secret=opened.secret,
        publish=WheelPublisher(window.wheel, window.loader.wake, config.wheel_bytes_max).publish,
        begin_batch=window.decisions.begin_batch,
        register=register,
        confirm=None if shared is None else shared.confirm,
        on_fatal=on_fatal if shared is not None and around.threaded else None,
        under_way_bytes_max=config.inflight_bytes_max,
    )
    around.undo.callback(writer.close)
    commits: GroupCommit[Submission] = GroupCommit(
        "tarry-intake",
        writer.commit,
        on_fatal,
        weight_max=config.inflight_bytes_max,
        threaded=around.threaded,
        placement=around.placement,
        await_turn=shared.await_turn if shared is not None and around.threaded else None,
    )
    around.undo.callback(commits.close)
    limits = MessageLimits(
        config.delay_ms_max,
        config.body_bytes_max,
        config.properties_bytes_max,
        levels=parse_levels(config.delay_levels),
        repeat_ms_min=config.repeat_ms_min,
    )
    acceptance = Acceptance(config, around.files, around.health, window.wheel)
    bound = TopicBound(config.topics_max, opened.intake, opened.ready)
    scheduling = Scheduling(
        acceptance, bound, commits, around.clock, limits, opened.secret, dedupe=config.dedupe_ms > 0
    )
    return Accepting(register, writer, commits, limits, acceptance, bound, scheduling)


def _refuse_all(health: Health, error: BaseException, submissions: list[Submission]) -> None:
    health.fail(error)
    for submission in submissions:
        submission.refuse(as_tarry_error(error, "writing the intake"))


@dataclass(frozen=True, slots=True)
class DispatchPath:
    """The way of messages from the wheel to consumers."""

    series: Series
    dispatcher: Dispatcher
    journal: Journal
    groups: ConsumerGroups


def _make_delivery(around: Opened, opened: OpenedFiles, window: LoadedWindow, accepting: Accepting) -> DispatchPath:
    config, clock, files, ready = around.config, around.clock, around.files, opened.ready
    scheduling = accepting.scheduling
    series = Series(
        window.wheel,
        ready,
        scheduling.carry_out,
        missed_after_ms=config.missed_after_ms,
        threaded=around.threaded,
    )
    dispatcher = Dispatcher(
        window.wheel, opened.intake, ready, window.loader, series, clock, opened.bound, around.placement
    )
    registry = GroupRegistry()

    def sync_ready(ticket: int | None) -> None:
        ready.sync(ready.ticket() if ticket is None else ticket)

    journal = Journal(
        around.engine.log(LogKind.ACKS),
        segment_bytes_max=config.segment_bytes_max,
        sync_ready=sync_ready,
        snapshot=registry.entries,
        on_fatal=around.health.fail,
        threaded=around.threaded,
        durable=opened.checkpoint.acks,
        placement=around.placement,
    )
    around.undo.callback(journal.close)
    on_handout = around.lateness.on_handed_out
    groups = ConsumerGroups.open(
        config,
        clock,
        files,
        ready,
        journal,
        registry,
        on_handout,
        scheduling.put,
        accepting.bound.check_names,
        threaded=around.threaded,
        may_hand_out=around.may_hand_out,
        traces=recorder_of(around.traces, clock),
    )
    return DispatchPath(series, dispatcher, journal, groups)


@dataclass(frozen=True, slots=True)
class MessagePath:
    """The stages that messages pass, in order."""

    window: LoadedWindow
    accepting: Accepting
    delivery: DispatchPath


def make_message_path(around: Opened, opened: OpenedFiles) -> MessagePath:
    """Make the parts of the message path.

    Raises:
        CorruptError: the journal or the registry is damaged.
    """
    window = _make_window(around, opened)
    accepting = _make_accepting(around, opened, window)
    delivery = _make_delivery(around, opened, window, accepting)
    # Last: to open the registry changes files, and a directory that is refused is left as it was found.
    _recover(around, opened, window, accepting)
    return MessagePath(window, accepting, delivery)


def _recover(around: Opened, opened: OpenedFiles, window: LoadedWindow, accepting: Accepting) -> None:
    """Open the registry, and give it, the wheel and the loader what arrived since the checkpoint."""
    checkpoint, registry, jobs, view = opened.checkpoint, opened.registry, opened.jobs, opened.view
    open_registry(registry, checkpoint, jobs.registry_writes, opened.intake, view, around.clock.now_ms())
    ready = opened.ready.topics
    unknown_before = {name: topic.first for name, topic in ready.items() if name not in checkpoint.offsets}
    take_up_arrivals(
        checkpoint, opened.intake, registry, window.wheel, window.fired, accepting.register, unknown_before
    )
    # After it: where the crash came when the log told of the job and `jobs` did not know it yet, it does now. Taken for
    # one that is still to be told of, it would stay among the untaken, and the loader would bring it a second time.
    window.announcements.find_unannounced(opened.store.bulk_number)
    # What they brought below `fired_until_ms` the loader would pass over.
    window.loader.take_up(view, window.announcements.to_load)
    window.announcements.hold_checkpoints()
