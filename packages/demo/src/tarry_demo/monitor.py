"""Polls the broker every half second while it works: counters, pending, memory, the pipeline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tarry.base.errors import TarryError
from tarry.client import Client
from tarry.spark.runtime.process import session_members
from tarry_demo.broker_process import BrokerProcess, memory_bytes

LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """The broker at a moment."""

    at_ms: int
    accepted: int
    fired: int
    fired_from_store: int
    committed_seq: int
    pipeline: dict[str, Any]
    broker_bytes: int
    pipeline_bytes: int

    @property
    def pending(self) -> int:
        """Messages that are accepted and not due yet."""
        return self.accepted - self.fired

    @property
    def pipeline_pid(self) -> int | None:
        """The id of the pipeline's process, if it runs."""
        return (self.pipeline.get("supervisor") or {}).get("pid")

    @property
    def pipeline_state(self) -> str:
        """One of starting, idle, running, failed, waiting, …"""
        # Until the job or its supervisor has reported, the broker shows "off".
        state = str(self.pipeline.get("state", "off"))
        return "starting" if state == "off" else state

    @property
    def pipeline_ready(self) -> bool:
        """True if Spark works, or waits for work."""
        return self.pipeline_pid is not None and self.pipeline_state in ("idle", "running")


class Monitor:
    """A thread that takes snapshots of the broker; start and end it with a ``with`` block.

    While the broker is away there are no snapshots.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._client = Client(broker.address, timeout=5.0)
        self._ending = threading.Event()
        self._changed = threading.Condition()
        self.looks: list[BrokerSnapshot] = []
        self._thread = threading.Thread(target=self._run, name="demo-monitor", daemon=True)

    @property
    def last(self) -> BrokerSnapshot | None:
        """The newest snapshot."""
        return self.looks[-1] if self.looks else None

    def look(self) -> BrokerSnapshot:
        """Take a snapshot now.

        Raises:
            TarryError: the broker does not answer.
        """
        pid = self._broker.pid
        status = self._client.status()
        pipeline = status["pipeline"]
        child = (pipeline.get("supervisor") or {}).get("pid")
        if child is not None and pid == self._broker.pid:
            self._broker.add_pipeline(child)
        return BrokerSnapshot(
            at_ms=time.time_ns() // 1_000_000,
            accepted=status["accepted"],
            fired=status["fired"],
            fired_from_store=status["fired_from_store"],
            committed_seq=status["store"]["committed_seq"],
            pipeline=pipeline,
            broker_bytes=memory_bytes([pid] if pid is not None else []),
            pipeline_bytes=memory_bytes(session_members(child) if child is not None else []),
        )

    def drained(self) -> bool:
        """Return whether everything accepted has fallen due and is acknowledged.

        It costs the broker more than a snapshot.

        Raises:
            TarryError: it does not answer.
        """
        return not any(topic.pending or topic.ready for topic in self._client.pending())

    def wait(
        self, done: Callable[[BrokerSnapshot], bool], timeout_s: float, meanwhile: Callable[[], None]
    ) -> BrokerSnapshot | None:
        """Wait for a snapshot that is ``done``; return None if that took too long.

        ``meanwhile`` is called every half second.
        """
        end = time.monotonic() + timeout_s
        seen = len(self.looks)
        while time.monotonic() < end:
            meanwhile()
            with self._changed:
                self._changed.wait(LOOK_S)
            for look in self.looks[seen:]:
                seen += 1
                if done(look):
                    return look
        return None

    def __enter__(self) -> Monitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._ending.wait(LOOK_S):
            try:
                look = self.look()
            except TarryError:
                continue
            with self._changed:
                self.looks.append(look)
                self._changed.notify_all()
