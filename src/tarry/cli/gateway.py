"""``tarry gateway``: a front in processes of its own, for a broker that runs elsewhere or beside it."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from tarry.base.descriptors import raise_limit
from tarry.base.endpoint import are_sockets
from tarry.base.errors import InvalidArgumentError
from tarry.base.logs import log_to_stderr
from tarry.base.stop_signals import StopSignals
from tarry.base.version import VERSION
from tarry.cli import output
from tarry.cli.serve import pairs

FRONT = "rocketmq"
LOOK_S = 0.5


def gateway(
    broker: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="HOST:PORT or unix:PATH: the broker's setting `gateway`; A,B where another machine may take it over.",
        ),
    ],
    rocketmq: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where RocketMQ's v5 clients connect.")],
    workers: Annotated[int, typer.Option(min=1, max=256, help="How many processes.")] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="data, gateway_…, rocketmq_…, tls_…: files of this machine; repeatable."
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run a front for a broker, in processes of its own, until SIGTERM or SIGINT.

    The workers share the port. One that ends is started again; while the broker is away, clients wait at the port.
    Settings are the broker's, but for those that name files, where they are given here: data (for a certificate of its
    own), rocketmq_keys, rocketmq_tls, rocketmq_tls_certificate, rocketmq_tls_key; tls_certificate, tls_key and
    tls_client_ca, for RocketMQ's clients and for a broker that asks for a certificate; tls_clients and tls_version_min;
    and gateway_secret and gateway_tls_ca: the secret that a broker asks for by TCP, and who signs its certificate where
    it speaks TLS.

    \b
    tarry serve --data data --set gateway=10.0.0.5:7612 --set gateway_secret=FILE
    tarry gateway --broker 10.0.0.5:7612 --rocketmq 0.0.0.0:8081 --workers 4 --set gateway_secret=FILE
    tarry serve --data data --rocketmq 127.0.0.1:8081 --workers 2     # the same beside the broker, in one command
    """
    from tarry.cli.gateway_worker import Settings
    from tarry.fronts.gateway.supervisor import WorkerSupervisor
    from tarry.fronts.registry import front_of

    own = own_settings(pairs(settings or []), is_near=are_sockets(broker))
    front_of(FRONT).check_installed()
    log_to_stderr(verbose=verbose)
    raise_limit()
    with StopSignals() as stop:
        worker = Settings(broker, FRONT, rocketmq, verbose, own)
        supervisor = WorkerSupervisor(worker.command, rocketmq, FRONT, workers)
        supervisor.start()
        try:
            output.line(f"tarry {VERSION} gateway rocketmq on {supervisor.address}, {workers} workers, broker {broker}")
            while not stop.wait(LOOK_S):
                pass
        finally:
            supervisor.stop()
    logging.getLogger("tarry.gateway").info("stopped")


def allowed_settings() -> tuple[str, ...]:
    """Return the names of the settings that a gateway may be given."""
    from tarry.fronts.gateway.remote.broker import OWN_IF_GIVEN, OWN_SETTINGS

    return *OWN_SETTINGS, *OWN_IF_GIVEN


def own_settings(given: dict[str, str], *, is_near: bool) -> dict[str, str]:
    """Return the settings that a gateway has in place of its broker's.

    ``is_near``: both are on one machine.

    Raises:
        InvalidArgumentError: one that was given is the broker's, or a value is not allowed.
    """
    from tarry.base.config import load
    from tarry.fronts.gateway.remote.broker import OWN_SETTINGS
    from tarry.fronts.registry import ServerConfig

    allowed = allowed_settings()
    others = sorted(set(given) - set(allowed))
    if others:
        raise InvalidArgumentError(f"--set {others[0]}: that is the broker's; allowed: {', '.join(allowed)}")
    loaded = load(None, given, model=ServerConfig)
    # What names a file of this machine is this machine's, also where it is not given; beside the broker it is the same.
    always = () if is_near else OWN_SETTINGS
    names = [name for name in allowed if name in always or loaded.origins[name] != "default"]
    values = {name: getattr(loaded.config, name) for name in names}
    return {name: str(value) for name, value in values.items() if value is not None}
