"""The parts of an open broker, each made once, in the order of :mod:`tarry.broker.construction`."""

from __future__ import annotations

from dataclasses import dataclass

from tarry.api.board import Board
from tarry.broker.acceptance import Acceptance
from tarry.broker.access_tokens import AccessTokens
from tarry.broker.audit import AuditWriter
from tarry.broker.backups import Backups
from tarry.broker.bulk import Bulk
from tarry.broker.changes import Changes
from tarry.broker.consumers import Consumers
from tarry.broker.damage import Damage
from tarry.broker.dispatcher import Dispatcher
from tarry.broker.hand_out_bound import HandOutBound
from tarry.broker.health import Health
from tarry.broker.identities import Identities
from tarry.broker.jobs import Jobs
from tarry.broker.key_backfill import KeyBackfill
from tarry.broker.last_backup import LastBackup
from tarry.broker.loops import Loops
from tarry.broker.minutes import Minutes
from tarry.broker.pipeline import Pipeline
from tarry.broker.placed import PlacedMessages
from tarry.broker.progress import Checkpointer
from tarry.broker.push import Push
from tarry.broker.queries.lateness import Lateness
from tarry.broker.queries.queries import Queries
from tarry.broker.queues import Queues
from tarry.broker.scheduling import Scheduling
from tarry.broker.scrub import Scrub
from tarry.broker.series import Series
from tarry.broker.status import Status
from tarry.broker.test_time import TestTime
from tarry.broker.traces import SpanExport
from tarry.groups import ConsumerGroups, DeadLetters
from tarry.intake import Intake, IntakeWriter, Submission
from tarry.log.commit import GroupCommit
from tarry.log.engine import LogEngine
from tarry.names import Registry
from tarry.queue import Journal, ReadyLog
from tarry.store import Store
from tarry.wheel import Loader, Wheel


@dataclass(frozen=True, slots=True)
class BrokerComponents:
    """All parts of an open broker."""

    engine: LogEngine
    secret: bytes
    health: Health
    damage: Damage
    scrub: Scrub
    store: Store
    intake: Intake
    writer: IntakeWriter
    commits: GroupCommit[Submission]
    access_tokens: AccessTokens
    identities: Identities
    audit: AuditWriter
    registry: Registry
    ready: ReadyLog
    bound: HandOutBound
    journal: Journal
    wheel: Wheel
    loader: Loader
    dispatcher: Dispatcher
    series: Series
    groups: ConsumerGroups
    dead_letters: DeadLetters
    push: Push
    board: Board
    jobs: Jobs
    lateness: Lateness
    traces: SpanExport | None
    acceptance: Acceptance
    scheduling: Scheduling
    changes: Changes
    placed: PlacedMessages
    consumers: Consumers
    queues: Queues
    key_backfill: KeyBackfill
    bulk: Bulk
    backups: Backups
    last_backup: LastBackup
    progress: Checkpointer
    pipeline: Pipeline
    status: Status
    queries: Queries
    minutes: Minutes
    loops: Loops
    test_time: TestTime | None

    def close(self) -> None:
        """Close the files, and release the directory."""
        if self.traces is not None:
            self.traces.close()
        self.minutes.close()
        self.audit.close()
        self.identities.close()
        self.bound.close(is_durable=False)
        self.intake.close()
        self.registry.close()
        self.ready.close()
        self.engine.release()
