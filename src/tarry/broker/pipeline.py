"""What the data pipeline asks of the broker, carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tarry.api.operations import AnnounceStore, GetIntakeState, ReadIntake, SetPipelineStatus
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.broker.jobs import Jobs
from tarry.broker.progress import Progress
from tarry.broker.store_view import StoreFollower
from tarry.intake import Intake


class Pipeline:
    """Any thread. ``on_store_news``: the store has a new version."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        intake: Intake,
        store: StoreFollower,
        jobs: Jobs,
        progress: Progress,
        on_store_news: Callable[[], None],
    ) -> None:
        self.status: dict[str, Any] = {"state": "off"}
        """What the pipeline reports of itself."""
        self._config = config
        self._clock = clock
        self._intake = intake
        self._store = store
        self._jobs = jobs
        self._progress = progress
        self._on_store_news = on_store_news

    def intake_state(self, _: GetIntakeState) -> dict[str, Any]:
        """What the schedule query plans with; the fields are described in ``docs/formats-flight.md``."""
        intake, last = self._intake, self._progress.last
        committed_seq = self._store.snapshot.committed_seq
        uncommitted = intake.published_seq > max(committed_seq, intake.first_seq)
        return {
            "first_seq": intake.first_seq,
            "durable_seq": intake.published_seq,
            "committed_seq": committed_seq,
            "waiting_bytes": intake.bytes_from(committed_seq),
            "oldest_ms": intake.born_ms(committed_seq) if uncommitted else None,
            "fired_until_ms": last.fired_until_ms,
            "fired_seq": last.fired_seq,
            "expire_until_ms": self._progress.expire_until_ms,
            "cancelled_jobs": self._jobs.cancelled.to_wire(),
            "now_ms": self._clock.now_ms(),
            "shard": self._config.shard,
            "store_uri": self._config.store_uri,
        }

    def read_intake(self, request: ReadIntake) -> Iterator[pa.RecordBatch]:
        """A range of what was accepted."""
        return self._intake.read(request.start, request.end)

    def announce_store(self, _: AnnounceStore) -> None:
        """The store has a new version."""
        self._on_store_news()

    def set_status(self, request: SetPipelineStatus) -> None:
        """Merge what the pipeline, or its supervisor, reports."""
        self.status = {**self.status, **request.status}
