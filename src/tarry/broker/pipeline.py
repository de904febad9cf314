"""Operations of the data pipeline, carried out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from tarry.api.operations import AnnounceStore, GetIntakeState, ReadIntake, SetPipelineStatus
from tarry.api.wire import encode_json
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import CorruptError, InvalidArgumentError
from tarry.broker.damage import Damage
from tarry.broker.jobs import Jobs
from tarry.broker.progress import Checkpointer
from tarry.broker.store_view import StoreFollower
from tarry.intake import Intake

STATUS_BYTES_MAX = 64 << 10
STATUS_NAMES_MAX = 64
"""Most names of the status that the pipeline reports, as JSON.

Some dozens of names and a kilobyte are usual.
"""


@dataclass(eq=False)
class Pipeline:
    """Operations of the data pipeline. Any thread.

    ``on_store_news`` is called for a new version of the store. ``status`` is the pipeline's report of itself.
    """

    _config: Config
    _clock: Clock
    _intake: Intake
    _store: StoreFollower
    _jobs: Jobs
    _progress: Checkpointer
    _damage: Damage
    _on_store_news: Callable[[], None]
    status: dict[str, Any] = field(default_factory=lambda: {"state": "off"})
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def intake_state(self, _: GetIntakeState) -> dict[str, Any]:
        """Return the data that the schedule query plans with; ``docs/formats-flight.md`` describes the fields."""
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
            "epoch": self._store.epoch,
            **self.store_place(),
        }

    def store_place(self) -> dict[str, Any]:
        """Return the store's place, its table, this broker's part of it, and the time."""
        uri, table_id = self._store.place
        return {"store_uri": uri, "table_id": table_id, "shard": self._config.shard, "now_ms": self._clock.now_ms()}

    def read_intake(self, request: ReadIntake) -> Iterator[pa.RecordBatch]:
        """Read a range of the accepted messages.

        Raises:
            InvalidArgumentError: it ends behind what there is.
        """
        self._intake.check_end(request.end)
        return self._read_intake(request)

    def _read_intake(self, request: ReadIntake) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._intake.read(request.start, request.end)
        except CorruptError as error:
            self._damage.report(error)
            raise

    def announce_store(self, _: AnnounceStore) -> None:
        """Note that the store has a new version."""
        self._on_store_news()

    def set_status(self, request: SetPipelineStatus) -> None:
        """Merge what the pipeline, or its supervisor, reports.

        Raises:
            InvalidArgumentError: it is too much, or cannot be shown.
        """
        _check_page(request.status.get("ui"))
        with self._lock:
            status = {**self.status, **request.status}
            _check_size(status)
            self.status = status


def _check_size(status: Mapping[str, Any]) -> None:
    # It is kept, and is part of every answer about the broker: values that cannot be encoded would spoil them all.
    try:
        size = len(encode_json(status))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidArgumentError(f"the pipeline's status cannot be shown: {error}; allowed: plain JSON") from None
    if len(status) > STATUS_NAMES_MAX or size > STATUS_BYTES_MAX:
        raise InvalidArgumentError(
            f"the pipeline's status has {len(status)} names and {size} bytes of JSON with what was reported before; "
            f"allowed: {STATUS_NAMES_MAX} and {STATUS_BYTES_MAX}"
        )


def _check_page(ui: object) -> None:
    if ui is None:
        return
    try:
        is_page = isinstance(ui, str) and urlsplit(ui).scheme in ("http", "https") and ui.isprintable()
    except ValueError:
        is_page = False
    if not is_page:
        raise InvalidArgumentError(f"ui is {ui!r:.80}; allowed: the http:// or https:// address of Spark's page")
