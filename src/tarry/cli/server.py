"""The process of ``tarry serve``: starts the parts in order, waits, stops them in the other order."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loopgrpc import UnreadBytes
from tarry.base.arrow_memory import bound_default_pool
from tarry.base.config import Config
from tarry.base.delay import format_ms
from tarry.base.descriptors import ConnectionLimits, raise_limit
from tarry.base.endpoint import parse_address
from tarry.base.errors import (
    ClosedError,
    InvalidArgumentError,
    TarryError,
    UnavailableError,
)
from tarry.base.logs import environment, log_to_stderr
from tarry.base.memory import Trimmer
from tarry.base.placement import ANY_CORE, Placement, SharedCore, collect_often, settle_memory, shorten_turns
from tarry.base.setting_types import STANDING_BY
from tarry.base.stop_signals import StopSignals
from tarry.base.version import VERSION
from tarry.base.without_pandas import leave_pandas_out
from tarry.cli import output
from tarry.cli.exits import ExitCode, exit_code
from tarry.cli.failures import failure_of
from tarry.cli.notify import ServiceManager
from tarry.cli.umask import UMASK

if TYPE_CHECKING:
    from tarry.broker import Broker
    from tarry.fronts.kit.front import Front, FrontServices, RunningFront
    from tarry.spark.pipeline.supervisor import PipelineSupervisor

log = logging.getLogger("tarry.serve")

LOOK_S = 0.5
"""Seconds between checks of the broker's and the pipeline's health."""
PIPELINE_STOP_S = 3.0
"""Seconds that the pipeline has to end by itself.

It does not react while its JVM starts; killing it loses nothing.
"""
LEFT_END_S = 0.5
"""Seconds that the process takes to end where threads were left at requests without an answer."""
ASKING = ("tarry-log-", "tarry-load", "tarry-keep", "tarry-base", "tarry-early-store")
"""Threads that ask a store: the broker's stop leaves them where it gives no answer."""
FATAL_END_S = 10.0
"""Seconds that a failed broker may take to stop."""


def run(config: Config, *, unknown_variables: Sequence[str] = (), verbose: bool = False) -> None:
    """Serve until a signal comes.

    Raises:
        TarryError: it could not start. FatalError: a disk failed it while it ran. CorruptError: a damaged file did.
        OwnershipLostError: its directory is another broker's now.
    """
    log_to_stderr(verbose=verbose, level=config.log_level, format=config.log_format)
    # Workers of fronts and the pipeline log in the same way.
    os.environ.update(environment(config.log_level, config.log_format))
    # Beside that bound: Arrow's own allocators keep what was freed; the system's gives it back.
    if bound_default_pool(config.body_bytes_max) is None:
        log.warning("what compressed batches unpack to is not bounded: see ARROW_DEFAULT_MEMORY_POOL in the manual")
    for variable in unknown_variables:
        log.warning("%s in the environment is no setting, and is ignored; see tarry serve --print-config", variable)
    os.umask(UMASK)
    shorten_turns()
    files_max = raise_limit()
    log.debug("%d files and connections may be open", files_max)
    code, others = ExitCode.FAILED, set(threading.enumerate())
    manager = ServiceManager()
    try:
        with ExitStack() as stack:
            stop = stack.enter_context(StopSignals())
            try:
                _serve(config, files_max, stop, stack, manager)
            except ClosedError:
                if not stop.wait(0):
                    raise
        code = ExitCode.OK
    except TarryError as error:
        code = exit_code(error)
        raise
    finally:
        if any(thread.name.startswith(ASKING) for thread in threading.enumerate() if thread not in others):
            _end_within(LEFT_END_S, code)  # Python's own end would wait for them
    log.info("stopped")


def _serve(config: Config, files_max: int, stop: StopSignals, stack: ExitStack, manager: ServiceManager) -> None:
    # Not before the pool is bounded: Arrow reads its environment when it is loaded.
    leave_pandas_out()
    from tarry.broker import Broker
    from tarry.cli.wanted_fronts import wanted_fronts
    from tarry.fronts.kit.exposure import AnonymousWarning

    fronts = wanted_fronts(config)
    _load(fronts)
    placement = SharedCore() if config.share_core == "on" else ANY_CORE
    if config.log is not None and config.takeover in STANDING_BY:
        manager.is_serving("standing by, or opening the logs")  # it may stand by for months

    def is_stopped() -> bool:
        manager.lives()
        return stop.wait(0)

    broker = stack.enter_context(Broker.open(config, placement=placement, audited=True, is_stopped=is_stopped))
    connections = ConnectionLimits.of(files_max, sum(front.takes_descriptors for front in fronts))
    running = _start_fronts(fronts, broker, placement, connections, stack)
    addresses = {name: address for front in running.values() for name, address in front.addresses.items()}
    anonymous = AnonymousWarning(addresses, broker)
    anonymous.look()
    stack.callback(broker.listen_to_identities(anonymous.look))
    serving = [f"{name} on {address}" for name, address in addresses.items()]
    broker.note_serving(addresses)
    standing = "" if config.test_clock is None else f", TEST CLOCK at {format_ms(broker.clock.now_ms())}"
    said = f"serving {', '.join(serving or ['no front'])}, data {config.data}{standing}"
    output.line(f"tarry {VERSION} {said}")
    log.info("tarry %s, process %d, %s", VERSION, os.getpid(), said)
    manager.is_serving(said)
    stack.callback(manager.is_stopping)
    address = running["flight"].addresses["flight"] if "flight" in running else None
    supervisor = _start_pipeline(broker, config, address, stack)
    settle_memory()
    collect_often()
    _wait(broker, supervisor, stop, manager)


def _load(fronts: Sequence[Front]) -> None:
    """Load the modules of fronts: one that stands by serves without waiting for them.

    Raises:
        NotFoundError: a package is not installed.
    """
    import tarry.cli.workers  # noqa: F401 - it is needed at the start of the first front

    for front in fronts:
        front.load()


def _start_fronts(
    fronts: Sequence[Front], broker: Broker, placement: Placement, connections: ConnectionLimits, stack: ExitStack
) -> dict[str, RunningFront]:
    """Start fronts in their order, in this process or in workers; return them by name."""
    from tarry.cli.workers import Workers
    from tarry.fronts.gateway.settings import GatewaySettings
    from tarry.fronts.kit.exposure import relying_on_identities
    from tarry.fronts.kit.front import FrontServices
    from tarry.fronts.kit.tls_settings import TlsSettings

    config = broker.config
    workers = GatewaySettings.of(config).workers
    running: dict[str, RunningFront] = {}
    identities = broker.components.identities
    identities.exposed = relying_on_identities(config)
    identities.ways_in.takes_certificates = TlsSettings.of(config).tls_client_ca is not None
    services = FrontServices(broker, "", placement, connections, UnreadBytes(), local=broker)
    for front in fronts:
        _check_guarded(front, broker)
        own = replace(services, address=front.address(config))
        if workers and front.in_worker:
            from tarry.fronts.gateway.front import GatewayPorts

            ports = running["gateway"]
            assert isinstance(ports, GatewayPorts)
            started: RunningFront = Workers(front, ports.near_address, own, workers)
        else:
            started = run_front(front, own, running)
        running[front.name] = started
        stack.callback(started.stop)
    return running


def run_front(front: Front, services: FrontServices, running: Mapping[str, RunningFront]) -> RunningFront:
    """Start a front in this process; an error about its port says which front of this broker has it.

    The port that ``remoting`` listens on beside its own is in no setting, so nobody would think of it.
    """
    try:
        return front.run(services)
    except UnavailableError as error:
        port = services.address.rpartition(":")[2]
        taken = {name: own for each in running.values() for name, own in each.addresses.items()}
        for name, own in taken.items():
            if port not in ("", "0") and own.rpartition(":")[2] == port:
                way = " or remoting_vip=off" if name == "remoting vip" else ""
                raise UnavailableError(
                    f"{front.name}: {error}; {name} listens on {own} already; allowed: another port{way}"
                ) from error
        raise


def _check_guarded(front: Front, broker: Broker) -> None:
    """Refuse a front that cannot ask who its callers are, where they have to be asked; else note it.

    Raises:
        InvalidArgumentError: it cannot, and there are identities.
    """
    if front.asks_callers:
        return
    if broker.identities:
        raise InvalidArgumentError(
            f"{front.name} is set, this broker has identities, and {front.title} cannot ask who its callers are yet; "
            f"allowed: without {front.name}, or without identities"
        )
    broker.components.identities.unguarded.append(front.name)


def _start_pipeline(broker: Broker, config: Config, address: str | None, stack: ExitStack) -> PipelineSupervisor | None:
    if config.pipeline == "off":
        return None
    if config.test_clock is not None:
        log.info("the pipeline is off: Spark goes by the real clock, and this broker by a test clock")
        return None
    if address is None:
        log.warning("the pipeline is off: it reaches the broker through the Flight front, which has no address")
        return None
    from tarry.fronts.flight.front import pipeline_socket
    from tarry.spark.pipeline.supervisor import PipelineSupervisor

    token = broker.components.identities.pipeline_token()
    supervisor = PipelineSupervisor.of_schedule(config, reachable(address), token, pipeline_socket(config))
    stack.callback(supervisor.stop, PIPELINE_STOP_S)
    supervisor.start()
    broker.set_pipeline_status({"state": "starting"})
    return supervisor


def _wait(broker: Broker, supervisor: PipelineSupervisor | None, stop: StopSignals, manager: ServiceManager) -> None:
    trimmer = Trimmer()
    while not stop.wait(LOOK_S):
        manager.lives()
        trimmer.look()
        if broker.wait_fatal(0):
            error = failure_of(broker.status())
            _end_within(FATAL_END_S, exit_code(error))
            raise error
        if supervisor is not None:
            broker.set_pipeline_status(pipeline_status(supervisor.status()))


def _end_within(seconds: float, code: ExitCode) -> None:
    # Whoever watches this process waits for its end; a part that hangs at a failed disk must not keep it.
    timer = threading.Timer(seconds, os._exit, [code])
    timer.daemon = True
    timer.start()


def pipeline_status(supervisor: dict[str, Any]) -> dict[str, Any]:
    """Return the status of the pipeline to show: the job reports itself, but not while it does not run."""
    shown: dict[str, Any] = {"supervisor": supervisor}
    if supervisor["state"] != "running":
        shown["state"] = supervisor["state"]
    return shown


def reachable(address: str) -> str:
    """Return an address that this machine can connect to, for a listening one."""
    host, port = parse_address(address)
    return f"{ {'0.0.0.0': '127.0.0.1', '[::]': '[::1]'}.get(host, host) }:{port}"
