"""Process of a gateway's worker: a front behind a link, until told to stop, or its broker is lost.

It is started by :mod:`tarry.fronts.gateway.supervisor` with its settings as JSON, and ends when that process has ended.
Without its link a worker knows nothing that is true, so it ends; the next one begins when the broker can be reached.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import select
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tarry.base.arrow_memory import bound_default_pool
from tarry.base.descriptors import ConnectionLimits, raise_limit
from tarry.base.errors import TarryError, UnavailableError
from tarry.base.logs import log_to_stderr
from tarry.base.memory import Trimmer, resident_bytes
from tarry.base.placement import ANY_CORE, collect_often, settle_memory, shorten_turns
from tarry.base.stop_signals import StopSignals
from tarry.base.without_pandas import leave_pandas_out
from tarry.cli.exits import ExitCode, exit_code
from tarry.cli.umask import UMASK
from tarry.fronts.gateway.supervisor import Start, ready_line

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
class Settings:
    """Of the workers of a front; ``own``: see :data:`tarry.fronts.gateway.remote.broker.OWN_SETTINGS`."""

    broker: str
    front: str
    address: str
    verbose: bool = False
    own: dict[str, Any] = field(default_factory=dict)
    start: Start | None = None
    """Of one of them."""

    def command(self, start: Start) -> Sequence[str]:
        """Return the command line of one worker."""
        return [sys.executable, "-m", __name__, json.dumps(asdict(replace(self, start=start)), default=str)]


def run(settings: Settings) -> None:
    """Serve until a signal comes, or the broker is gone.

    Raises:
        TarryError: the broker is not there.
    """
    # Brokers compress nothing, but who answers at a broker's address by plain TCP is not known to be one. A worker of
    # tarry serve, which reaches its broker by a socket of the same user, has the broker's environment, and no bound.
    bound_default_pool(0)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    leave_pandas_out()
    os.umask(UMASK)
    shorten_turns()
    connections = ConnectionLimits.of(raise_limit(), 1)
    with StopSignals() as stop:
        _serve(settings, connections, stop)


def _serve(settings: Settings, connections: ConnectionLimits, stop: StopSignals) -> None:
    from loopgrpc import UnreadBytes
    from tarry.fronts.gateway.remote.broker import FoundOwner, RemoteBroker
    from tarry.fronts.kit.front import FrontServices, WorkerFront
    from tarry.fronts.kit.listening import SharedPort
    from tarry.fronts.registry import front_of

    start = settings.start
    assert start is not None, "a worker is started"
    seen = None if start.found is None else FoundOwner(*start.found)
    broker = RemoteBroker(settings.broker, secrets.token_hex(8), settings.front, start.name, settings.own, seen)
    lost: list[bool] = []
    shared = SharedPort(socket.socket(fileno=start.listening), lambda: broker.connect(lambda: lost.append(True)))
    services = FrontServices(broker, settings.address, ANY_CORE, connections, UnreadBytes(), shared)
    front = front_of(settings.front).run(services)
    assert isinstance(front, WorkerFront), "only such a front is started in a worker"
    settle_memory()
    collect_often()
    sys.stdout.write(ready_line(broker.found))
    sys.stdout.flush()
    log.info("%s serves %s for the broker at %s", start.name, settings.address, broker.found.address)
    trimmer, began_s = Trimmer(), time.monotonic()
    said_s = measured_s = told_s = began_s
    while not stop.wait(LOOK_S):
        if lost or _is_alone(start.alive):
            break
        trimmer.look()
        now_s = time.monotonic()
        if now_s - said_s >= SAY_S:
            said_s = now_s
            broker.say(
                {
                    "pid": os.getpid(),
                    "restarts": start.restarts,
                    "uptime_ms": int((now_s - began_s) * 1000),
                    "cpu_ms": int(time.process_time() * 1000),
                    "resident_bytes": resident_bytes(),
                    **front.figures(),
                }
            )
        if now_s - told_s >= USES_S:
            told_s = now_s
            broker.say_uses()
        if now_s - measured_s >= CLOCK_S and not broker.is_near:
            measured_s = now_s
            try:
                broker.measure_clock()
            except UnavailableError as error:
                # A machine that has lost its power, or the way to it, ends no connection.
                log.warning("%s: %s", start.name, error)
                lost.append(True)
    log.info("%s ends: %s", start.name, "the broker is gone" if lost else "it was told to stop")
    front.stop(LOST_GRACE_S if lost else GRACE_S)
    broker.close()
    if lost:
        raise SystemExit(ExitCode.UNAVAILABLE)


def _is_alone(alive: int) -> bool:
    """Return whether the parent process has ended: nobody ever writes to that pipe."""
    poll = select.poll()
    poll.register(alive, select.POLLIN)
    return bool(poll.poll(0))


def main() -> None:
    """Run the worker that the command line describes."""
    given = json.loads(sys.argv[1])
    start = Start(**given["start"])
    settings, name = Settings(**{**given, "start": start}), start.name
    log_to_stderr(verbose=settings.verbose, process=name)
    try:
        run(settings)
    except TarryError as error:
        log.error("%s: %s", name, error)
        raise SystemExit(exit_code(error)) from None


if __name__ == "__main__":
    main()
