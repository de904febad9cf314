"""Term of a gateway's worker: its work for one broker, from where that is found until it is lost.

All that a worker knows is its broker's: groups and their numbers, identities, its clients' connections. So all of it is
made when a term begins and let go when it ends, and the next term begins with nothing.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from dataclasses import dataclass

from loopgrpc import UnreadBytes
from tarry.base.descriptors import ConnectionLimits
from tarry.base.errors import UnavailableError
from tarry.base.memory import Trimmer, resident_bytes
from tarry.base.placement import ANY_CORE
from tarry.base.stop_signals import StopSignals
from tarry.fronts.gateway.remote.broker import RemoteBroker
from tarry.fronts.gateway.supervisor import Start
from tarry.fronts.kit.front import Front, FrontServices, WorkerFront
from tarry.fronts.kit.listening import SharedPort

log = logging.getLogger("tarry.gateway")

LOOK_S = 0.25
"""Seconds between checks that the broker and the parent process are there."""
SAY_S = 1.0
"""Seconds between reports to the broker."""
CLOCK_S = 10.0
"""Seconds between readings of the broker's clock."""
USES_S = 90.0
"""Seconds between reports of used credentials, at which the broker looks each minute."""
GRACE_S, LOST_GRACE_S = 2.0, 0.2
"""For calls under way: when it stops, and when it has lost its broker."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """Things of a worker that are the same in all of its terms."""

    front: Front
    address: str
    """Address at which clients connect, for people."""
    start: Start
    connections: ConnectionLimits
    trimmer: Trimmer


class Term:
    """A front that serves for one broker; begun by the constructor, ended by :meth:`serve`."""

    def __init__(self, broker: RemoteBroker, workplace: Workplace, restarts: int) -> None:
        """Open the link, and serve at the port of all workers. ``broker`` is closed at the end.

        ``restarts``: how often this worker has begun before, in this process or in others.

        Raises:
            TarryError: the broker was lost meanwhile, or refuses.
        """
        self._broker, self._restarts = broker, restarts
        self._name, self._alive = workplace.start.name, workplace.start.alive
        self._trimmer = workplace.trimmer
        self._lost = threading.Event()
        # A descriptor of its own: the front closes it, and the next term needs the port, too.
        self._listening = socket.socket(fileno=os.dup(workplace.start.listening))
        try:
            shared = SharedPort(self._listening, lambda: broker.connect(self._lost.set))
            services = FrontServices(broker, workplace.address, ANY_CORE, workplace.connections, UnreadBytes(), shared)
            running = workplace.front.run(services)
        except BaseException:
            self._listening.close()
            broker.close()
            raise
        assert isinstance(running, WorkerFront), "only such a front is started in a worker"
        self._front = running
        self._began_s = self._said_s = self._measured_s = self._told_s = time.monotonic()

    def serve(self, stop: StopSignals) -> bool:
        """Serve, and end; return True if the broker was lost, False if it is time to stop."""
        try:
            while not self._lost.is_set() and not stop.wait(LOOK_S) and not is_alone(self._alive):
                if not self._lost.is_set():
                    self._work()
        finally:
            is_lost = self._lost.is_set()
            log.info("%s ends: %s", self._name, "the broker is gone" if is_lost else "it was told to stop")
            self._front.stop(LOST_GRACE_S if is_lost else GRACE_S)
            self._broker.close()
            self._listening.close()
        return is_lost

    def _work(self) -> None:
        """Do what is due now and then."""
        self._trimmer.look()
        now_s = time.monotonic()
        if now_s - self._said_s >= SAY_S:
            self._said_s = now_s
            self._broker.say(self._status(now_s))
        if now_s - self._told_s >= USES_S:
            self._told_s = now_s
            self._broker.say_uses()
        if now_s - self._measured_s >= CLOCK_S and not self._broker.is_near:
            self._measured_s = now_s
            try:
                self._broker.measure_clock()
            except UnavailableError as error:
                # A machine that has lost its power, or the way to it, ends no connection.
                log.warning("%s: %s", self._name, error)
                self._lost.set()

    def _status(self, now_s: float) -> dict[str, int]:
        return {
            "pid": os.getpid(),
            "restarts": self._restarts,
            "uptime_ms": int((now_s - self._began_s) * 1000),
            "cpu_ms": int(time.process_time() * 1000),
            "resident_bytes": resident_bytes(),
            **self._front.figures(),
        }


def is_alone(alive: int) -> bool:
    """Return whether the parent process has ended: nobody ever writes to that pipe."""
    poll = select.poll()
    poll.register(alive, select.POLLIN)
    return bool(poll.poll(0))
