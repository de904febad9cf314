"""A broker's health and counters, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tarry.api.board import Board
from tarry.api.clear_ports import ClearPorts, with_workers
from tarry.base.certificates import ending
from tarry.base.clock import Clock, StandingClock
from tarry.base.config import Config
from tarry.base.delay import format_ms
from tarry.base.exposure import LISTENERS, exposed
from tarry.base.version import VERSION
from tarry.broker.audit import AuditWriter
from tarry.broker.damage import Damage
from tarry.broker.health import SERVING, Health
from tarry.broker.identities import Identities
from tarry.broker.last_backup import LastBackup
from tarry.broker.pipeline import Pipeline
from tarry.broker.progress import Checkpointer
from tarry.broker.push import Push
from tarry.broker.queries.lateness import Lateness
from tarry.broker.scrub import Scrub
from tarry.broker.small_files import SmallFiles
from tarry.broker.store_view import StoreFollower
from tarry.broker.traces import SpanExport
from tarry.intake import Intake
from tarry.log.engine import SharedLogs
from tarry.names import Registry
from tarry.queue import ReadyLog
from tarry.wheel import Loader, Wheel

STORE_AWAY = "store away"
"""State of logs in an object store (:attr:`tarry.log.engine.SharedLogs.state`), and of the broker."""


@dataclass(eq=False)
class Status:
    """Health and counters of a broker. Any thread."""

    _config: Config
    _clock: Clock
    _health: Health
    _intake: Intake
    _ready: ReadyLog
    _wheel: Wheel
    _store: StoreFollower
    _progress: Checkpointer
    _pipeline: Pipeline
    _lateness: Lateness
    _damage: Damage
    _small_files: SmallFiles
    _loader: Loader
    _scrub: Scrub
    _registry: Registry
    _push: Push
    _board: Board
    _audit: AuditWriter
    _identities: Identities
    _logs: SharedLogs | None
    _last_backup: LastBackup
    _traces: SpanExport | None = None
    clear_ports: ClearPorts = field(init=False, default_factory=ClearPorts)
    """The ports of this process at which other machines may speak without TLS."""
    _started_ms: int = field(init=False)
    _exposed: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._started_ms = self._clock.now_ms()
        self._exposed = exposed({name: getattr(self._config, name, None) for name in LISTENERS})

    def read(self) -> dict[str, Any]:
        """Health, counters and positions as they are now."""
        wheel, intake, last, snapshot = self._wheel, self._intake, self._progress.last, self._store.snapshot
        uri, table_id = self._store.place
        places = self._damage.texts + self._small_files.lost
        fatal, gateways = self._health.fatal, self._board.shown("status")
        logs = None if self._logs is None else self._logs.state
        return {
            "version": VERSION,
            "state": self._state(logs),
            "fatal": str(fatal) if fatal else None,
            "fatal_code": self._health.fatal_code,
            "test_clock": format_ms(self._clock.now_ms()) if isinstance(self._clock, StandingClock) else None,
            "damage": {"places": places, "unreadable_messages": self._loader.unreadable},
            "scrub": self._scrub.progress,
            "backup": self._last_backup.state,
            "uptime_ms": self._clock.now_ms() - self._started_ms,
            "accepted": sum(intake.accepted.values()),
            "fired": sum(self._ready.ends().values()),
            "fired_from_store": self._ready.stored_rows,
            "handed_out": self._lateness.handed_out,
            "overdue": self._lateness.overdue(),
            "lateness_ms": self._lateness.delivered().summary(),
            "queue_lateness_ms": self._lateness.queued().summary(),
            "wheel": {"rows": wheel.rows, "bytes": int(wheel.bytes), "loaded_until_ms": wheel.loaded.due_ms},
            "intake": {"first_seq": intake.first_seq, "next_seq": intake.published_seq},
            "store": {
                "uri": uri,
                "table_id": table_id,
                "version": snapshot.version,
                "committed_seq": snapshot.committed_seq,
            },
            "log": logs,
            "registry": {"in_use": self._registry.exists, "made_again_ms": self._registry.made_again_ms},
            "checkpoint": {"fired_until_ms": last.fired_until_ms, "fired_seq": last.fired_seq},
            "pipeline": self._pipeline.status,
            "push": self._push.states(),
            "insecure_open": {} if self._identities.snapshot else self._exposed,
            "clear_ports": with_workers(self.clear_ports, gateways),
            "audit": self._audit.state,
            "traces": None if self._traces is None else self._traces.state,
            "certificates": ending(self._config, self._clock.now_ms()),
            "gateways": gateways,
        }

    def _state(self, logs: Mapping[str, Any] | None) -> str:
        """Return the health's state, or ``store away``: logs in a bucket that gives no answer take nothing."""
        own = self._health.state
        return STORE_AWAY if own == SERVING and logs is not None and logs["state"] == STORE_AWAY else own

    def read_all(self) -> dict[str, Any]:
        """Return what :meth:`read` does, and how long the logs' rounds took, as an overview has it."""
        return {**self.read(), "rounds_us": None if self._logs is None else self._logs.rounds_us().to_json()}

    def ping(self) -> dict[str, Any]:
        """Return the clock and the version."""
        return {"now_ms": self._clock.now_ms(), "version": VERSION}
