"""The process of ``tarry serve``: starts the parts in order, waits, stops them in the other order."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from loopgrpc import UnreadBytes
from tarry.base.arrow_memory import bound_default_pool
from tarry.base.config import Config
from tarry.base.descriptors import ConnectionLimits, raise_limit
from tarry.base.endpoint import parse_address, socket_path
from tarry.base.errors import CorruptError, FatalError, InvalidArgumentError, TarryError, UnavailableError
from tarry.base.exposure import FLIGHT, check_exposure
from tarry.base.logs import log_to_stderr
from tarry.base.memory import Trimmer
from tarry.base.placement import ANY_CORE, Placement, SharedCore, collect_often, settle_memory, shorten_turns
from tarry.base.stop_signals import StopSignals
from tarry.base.version import VERSION
from tarry.cli import front_modules, output
from tarry.cli.exits import ExitCode, exit_code
from tarry.cli.umask import UMASK

if TYPE_CHECKING:
    from tarry.broker import Broker
    from tarry.spark.pipeline.supervisor import PipelineSupervisor

log = logging.getLogger("tarry.serve")

LOOK_S = 0.5
"""Seconds between checks of the broker's and the pipeline's health."""
PIPELINE_STOP_S = 3.0
"""Seconds that the pipeline has to end by itself.

It does not react while its JVM starts; killing it loses nothing.
"""
WORKERS_S = 60.0
"""Seconds that the workers of a front may take to begin."""
FATAL_END_S = 10.0
"""Seconds that a failed broker may take to stop."""


def run(config: Config, *, unknown_variables: Sequence[str] = (), verbose: bool = False) -> None:
    """Serve until a signal comes.

    Raises:
        TarryError: it could not start. FatalError: a disk failed it while it ran. CorruptError: a damaged file did.
    """
    log_to_stderr(verbose=verbose)
    # Beside that bound: Arrow's own allocators keep what was freed; the system's gives it back.
    if bound_default_pool(config.body_bytes_max) is None:
        log.warning("what compressed batches unpack to is not bounded: see ARROW_DEFAULT_MEMORY_POOL in the manual")
    for variable in unknown_variables:
        log.warning("%s in the environment is no setting, and is ignored; see tarry serve --print-config", variable)
    os.umask(UMASK)
    shorten_turns()
    files_max = raise_limit()
    log.debug("%d files and connections may be open", files_max)
    if config.workers and config.rocketmq is None:
        raise InvalidArgumentError(f"workers is {config.workers}, and rocketmq has no address; allowed: both, or 0")
    with ExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        _serve(config, files_max, stop, stack)
    log.info("stopped")


def _serve(config: Config, files_max: int, stop: StopSignals, stack: ExitStack) -> None:
    from tarry.broker import Broker

    if config.flight is not None:
        check_exposure(FLIGHT, config.flight, config.insecure_open)  # before anything is made or opened
    if config.gateway is not None and socket_path(config.gateway) is None:
        from tarry.fronts.gateway.authentication import Trust

        Trust.of_broker(config, config.gateway)
    placement = SharedCore() if config.share_core == "on" else ANY_CORE
    broker = stack.enter_context(Broker.open(config, placement=placement))
    ports = sum(address is not None for address in (config.flight, config.rocketmq, config.remoting, config.http))
    connections = ConnectionLimits.of(files_max, ports + (config.push == "on"))
    unread = UnreadBytes()
    address = None
    if config.flight is not None:
        from tarry.fronts.flight import FlightFront

        front = FlightFront.start(
            broker, config.flight, placement, connections, config.flight_calls_max, config.insecure_open, unread
        )
        stack.callback(front.stop)
        address = front.address
    fronts = [] if address is None else [f"flight on {address}"]
    if config.gateway is not None or config.workers:
        fronts += _start_gateways(broker, config, placement, stack)
    if config.rocketmq is not None and not config.workers:
        rocketmq = front_modules.rocketmq_front().start(broker, config.rocketmq, placement, connections, unread)
        stack.callback(rocketmq.stop)
        fronts.append(f"rocketmq on {rocketmq.address}")
    if config.remoting is not None:
        remoting = front_modules.remoting_front().start(broker, config.remoting, placement, connections, unread)
        stack.callback(remoting.stop)
        fronts.append(f"remoting on {remoting.address}")
        if remoting.vip_address is not None:
            fronts.append(f"remoting vip on {remoting.vip_address}")
    if config.http is not None:
        http = front_modules.http_front()(broker, config.http, placement, connections, config.http_admin, unread=unread)
        stack.callback(http.stop)
        fronts.append(f"http on {http.address}")
        if http.admin_address is not None:
            fronts.append(f"http admin on {http.admin_address}")
    if config.push == "on":
        from tarry.fronts.push.front import PushFront

        stack.callback(PushFront.start(broker, placement, connections).stop)
    fronts = fronts or ["no front"]
    if config.metrics is not None:
        from tarry.fronts.metrics import MetricsFront

        metrics = MetricsFront.start(broker, config.metrics)
        stack.callback(metrics.stop)
        fronts.append(f"metrics on {metrics.address}")
    output.line(f"tarry {VERSION} serving {', '.join(fronts)}, data {config.data}")
    supervisor = _start_pipeline(broker, config, address, stack)
    settle_memory()
    collect_often()
    _wait(broker, supervisor, stop)


def _start_gateways(broker: Broker, config: Config, placement: Placement, stack: ExitStack) -> list[str]:
    """Start the port of gateways and the broker's own workers; return them for the line "serving"."""
    from tarry.fronts.gateway.front import GatewayFront, socket_of

    addresses = [] if config.gateway is None else [config.gateway]
    if config.workers and (config.gateway is None or socket_path(config.gateway) is None):
        # Its own workers come by a socket of this machine, whatever those of others have to show.
        addresses.append(socket_of(config.data))
    fronts = []
    for address in addresses:
        fronts.append(GatewayFront.start(broker, address, placement))
        stack.callback(fronts[-1].stop)
    lines = [] if config.gateway is None else [f"gateways on {fronts[0].address}"]
    if config.workers and config.rocketmq is not None:
        lines.append(_start_workers(fronts[-1].address, config.rocketmq, config.workers, stack))
    return lines


def _start_workers(broker: str, rocketmq: str, count: int, stack: ExitStack) -> str:
    """Start processes of the front for v5 clients; ``broker``: where they connect."""
    from tarry.cli.gateway_worker import Settings
    from tarry.fronts.gateway.supervisor import WorkerSupervisor

    front_modules.check_rocketmq()
    settings = Settings(broker, "rocketmq", rocketmq, verbose=log.isEnabledFor(logging.DEBUG))
    supervisor = WorkerSupervisor(settings.command, rocketmq, "rocketmq", count)
    stack.callback(supervisor.stop)
    supervisor.start()
    if not supervisor.wait_serving(WORKERS_S):
        ended = ", ".join(f"{worker['name']}: {worker['ended'] or worker['state']}" for worker in supervisor.status())
        raise UnavailableError(f"the front's workers did not begin ({ended}); the log above says why")
    return f"rocketmq on {supervisor.address} ({count} workers)"


def _start_pipeline(broker: Broker, config: Config, address: str | None, stack: ExitStack) -> PipelineSupervisor | None:
    if config.pipeline == "off":
        return None
    if address is None:
        log.warning("the pipeline is off: it reaches the broker through the Flight front, which has no address")
        return None
    from tarry.spark.pipeline.supervisor import PipelineSupervisor

    supervisor = PipelineSupervisor.of_schedule(config, reachable(address))
    stack.callback(supervisor.stop, PIPELINE_STOP_S)
    supervisor.start()
    broker.set_pipeline_status({"state": "starting"})
    return supervisor


def _wait(broker: Broker, supervisor: PipelineSupervisor | None, stop: StopSignals) -> None:
    trimmer = Trimmer()
    while not stop.wait(LOOK_S):
        trimmer.look()
        if broker.wait_fatal(0):
            raise _failure(broker.status())
        if supervisor is not None:
            broker.set_pipeline_status(pipeline_status(supervisor.status()))


def _failure(status: dict[str, Any]) -> TarryError:
    """Return the reason of the broker's failure, and what to do; it ends within :data:`FATAL_END_S`."""
    if status["fatal_code"] == CorruptError.code:
        how = "copy the data directory, then see 'When a file is damaged' in docs/operations.md"
        error: TarryError = CorruptError(f"{status['fatal']}; the broker has stopped, and lost nothing else: {how}")
    else:
        how = "start again when the disk is sound"
        error = FatalError(f"{status['fatal']}; what was acknowledged is on disk: {how}")
    _end_within(FATAL_END_S, exit_code(error))
    return error


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
