"""Process of a gateway's worker: a front behind a link, for one broker after another.

It is started by :mod:`tarry.fronts.gateway.supervisor` with its settings as JSON, and ends when that process has ended.
Without its link a front knows nothing that is true, so it ends (:mod:`tarry.cli.gateway_term`). The process stays, with
its modules loaded, and looks for the broker's owner; the next front begins with nothing. What will not end by itself
ends the process, too: another one is started after a pause that grows.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tarry.base.arrow_memory import bound_default_pool
from tarry.base.back_off import BackOff
from tarry.base.descriptors import ConnectionLimits, raise_limit
from tarry.base.errors import TarryError
from tarry.base.logs import log_to_stderr
from tarry.base.memory import Trimmer
from tarry.base.placement import collect_often, settle_memory, shorten_turns
from tarry.base.stop_signals import StopSignals
from tarry.base.without_pandas import leave_pandas_out
from tarry.cli.exits import exit_code
from tarry.cli.umask import UMASK
from tarry.fronts.gateway.supervisor import Start, ready_line

if TYPE_CHECKING:  # what loads Arrow, whose environment is set first
    from tarry.cli.gateway_term import Workplace
    from tarry.fronts.gateway.remote.broker import FoundOwner, RemoteBroker

log = logging.getLogger("tarry.gateway")

PAUSE_S, PAUSE_S_MAX = 0.05, 0.25
"""Seconds between two turns over the broker's addresses: the first pause, doubled up to the second."""
AGAIN_S, AGAIN_S_MAX = 0.05, 5.0
"""Seconds before the next broker is looked for; they grow where one is lost soon after it was found."""
STEADY_S = 10.0
"""A broker that was there for this many seconds was lost after the first pause of :data:`AGAIN_S`."""


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
    """Serve until a signal comes, or the parent process has ended.

    Raises:
        TarryError: the broker does not take this gateway, or the front cannot be started.
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
    """Serve for one broker after another."""
    from tarry.cli.gateway_term import Workplace
    from tarry.fronts.gateway.remote.broker import FoundOwner
    from tarry.fronts.registry import front_of

    start = settings.start
    assert start is not None, "a worker is started"
    front = front_of(settings.front)
    front.load()  # now, not when a broker is there at last
    workplace = Workplace(front, settings.address, start, connections, Trimmer())
    found = None if start.found is None else FoundOwner(*start.found)
    restarts, pauses = start.restarts, BackOff(AGAIN_S, AGAIN_S_MAX, STEADY_S)
    collect_often()
    while (broker := _find(settings, found, stop)) is not None:
        pauses.begin()
        found = broker.found
        try:
            if not _serve_for(broker, workplace, restarts, stop):
                return
            restarts += 1
        except TarryError as error:
            if not _may_end(error):
                raise
            log.warning("%s: %s", start.name, error)
        del broker  # and with it all that the worker knew of it
        if stop.wait(pauses.fail()):
            return


def _find(settings: Settings, found: FoundOwner | None, stop: StopSignals) -> RemoteBroker | None:
    """Return the broker's owner, as soon as there is one; None when it is time to stop.

    Raises:
        TarryError: what will not end by itself.
    """
    from tarry.cli.gateway_term import is_alone
    from tarry.fronts.gateway.remote.broker import RemoteBroker

    start, pauses = settings.start, BackOff(PAUSE_S, PAUSE_S_MAX)
    assert start is not None, "a worker is started"
    while not is_alone(start.alive):
        worker = secrets.token_hex(8)
        try:
            return RemoteBroker(settings.broker, worker, settings.front, start.name, settings.own, found)
        except TarryError as error:
            if not _may_end(error):
                raise
            log.warning("%s looks for its broker: %s", start.name, error)
        if stop.wait(pauses.fail()):
            return None
    return None


def _serve_for(broker: RemoteBroker, workplace: Workplace, restarts: int, stop: StopSignals) -> bool:
    """Serve until the broker is lost: True; or until it is time to stop: False."""
    from tarry.cli.gateway_term import Term

    name, found = workplace.start.name, broker.found
    term = Term(broker, workplace, restarts)
    settle_memory()
    sys.stdout.write(ready_line(found))
    sys.stdout.flush()
    log.info("%s serves %s for the broker at %s", name, workplace.address, found.address)
    return term.serve(stop)


def _may_end(error: TarryError) -> bool:
    """Return whether another broker, or this one in a moment, may take what this one refused."""
    from tarry.link.places import goes_on
    from tarry.link.tls_errors import is_final

    return goes_on(error) and not is_final(error.__cause__)


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
