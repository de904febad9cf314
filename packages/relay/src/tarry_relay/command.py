"""``tarry relay``: delayed messages from Kafka to Kafka, with Spark and a store, without a broker."""

from __future__ import annotations

import logging
import os
import threading
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.base.errors import InvalidArgumentError
from tarry.cli import output
from tarry.cli.options import SparkConf, SparkConfFile, duration_ms

if TYPE_CHECKING:
    from tarry.fronts.metrics.server import FiguresPort
    from tarry_relay.settings import RelaySettings, RunOptions
    from tarry_relay.status import RelayStatus

Text = Annotated[str | None, typer.Option()]


Name = Annotated[str | None, typer.Option(help="Of groups, transactional ids, topics of its own; default tarry.")]
Targets = Annotated[
    list[str] | None,
    typer.Option(metavar="[PATTERN=]TEMPLATE", help="Where to; default '{topic}-due'. Repeatable."),
]
Delays = Annotated[list[str] | None, typer.Option(metavar="PATTERN=30s", help="Topics with a fixed delay. Repeatable.")]
KafkaOptions = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="For librdkafka, as security.protocol. Repeatable.")
]
OtherSettings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other setting; repeatable.")
]


def relay(
    kafka: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Kafka; several with commas.")] = None,
    topics: Annotated[str | None, typer.Option(metavar="PATTERN", help="Source topics: a regular expression.")] = None,
    store: Annotated[str | None, typer.Option(metavar="URI", help="The relay's Delta table: path or URI.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(metavar="DIR", help="Spark's checkpoint; may be lost.")] = None,
    name: Name = None,
    target: Targets = None,
    delay: Delays = None,
    dead_letters: Annotated[str | None, typer.Option(metavar="TOPIC", help="Default NAME-dead-letters.")] = None,
    guarantee: Annotated[str | None, typer.Option(metavar="exactly-once|at-least-once")] = None,
    timestamp: Annotated[str | None, typer.Option(metavar="source|due|now", help="Of the target's records.")] = None,
    shards: Annotated[int | None, typer.Option(metavar="N", help="Ways out, side by side; default 2.")] = None,
    start: Annotated[str | None, typer.Option(metavar="earliest|latest", help="Where a new relay begins.")] = None,
    near: Annotated[str | None, typer.Option(metavar="250ms", help="What is due within it bypasses the store.")] = None,
    delay_max: Annotated[str | None, typer.Option(metavar="14640d", help="Longest delay.")] = None,
    kafka_option: KafkaOptions = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark's master; default local[*].")] = None,
    memory: Annotated[str | None, typer.Option(help="Of the driver's JVM; default 1g.")] = None,
    spark_conf: SparkConf = None,
    spark_conf_file: SparkConfFile = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="[HOST:]PORT", help="Prometheus, over HTTP; a port alone: on this machine.")
    ] = None,
    settings: OtherSettings = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Read settings from this TOML file.")] = None,
    parent_pid: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Relay delayed messages from Kafka to Kafka, until SIGTERM or SIGINT.

    Producers say when by a header (tarry-due-ms, tarry-due, tarry-delay-ms or tarry-delay) and where by another
    (tarry-topic); records without pass through at once. The status is a line of JSON on stdout every ten seconds; the
    log goes to stderr. docs/cluster.md has all of it.

    \b
    tarry relay --kafka localhost:9092 --topics 'orders|mails' --store store --checkpoint checkpoint
    tarry relay --config relay.toml --delay 'delay-<seconds>s' --target '{topic}-due'
    """
    given = _file(config) | {n: v for text in settings or [] for n, v in [_pair("--set", text)]}
    options = {
        "kafka": kafka,
        "topics": topics,
        "store": store,
        "name": name,
        "targets": target,
        "delays": delay,
        "dead_letters": dead_letters,
        "guarantee": guarantee,
        "timestamp": timestamp,
        "shards": shards,
        "start": start,
        "kafka_options": kafka_option,
        "checkpoint": checkpoint,
        "master": master,
        "memory": memory,
        "spark_conf": spark_conf,
        "spark_conf_file": spark_conf_file,
        "near_ms": None if near is None else duration_ms(near, "--near"),
        "delay_ms_max": None if delay_max is None else duration_ms(delay_max, "--delay-max"),
        "metrics": metrics,
    }
    given |= {n: v for n, v in options.items() if v is not None}
    address = given.pop("metrics", None)
    prepared = make(given)
    raise typer.Exit(_run(*prepared, address, parent_pid))


def make(given: dict[str, Any]) -> tuple[RelaySettings, RunOptions]:
    """Make the settings from names and values of a file or a command line.

    Raises:
        InvalidArgumentError: one is unknown, missing or not allowed.
    """
    from tarry_relay.settings import RelaySettings, RunOptions

    for needed in ("kafka", "topics", "store", "checkpoint"):
        if needed not in given:
            raise InvalidArgumentError(f"{needed} is not given; allowed: --{needed}, or {needed} in --config FILE")
    kinds = {RelaySettings: RelaySettings.__dataclass_fields__, RunOptions: RunOptions.__dataclass_fields__}
    parts: dict[type, dict[str, Any]] = {kind: {} for kind in kinds}
    for name, value in given.items():
        kind = next((kind for kind, fields in kinds.items() if name in fields), None)
        if kind is None:
            allowed = sorted(n for fields in kinds.values() for n in fields)
            raise InvalidArgumentError(f"setting {name!r} is unknown; allowed: {', '.join(allowed)}, metrics")
        parts[kind][name] = _value(name, value, str(kinds[kind][name].type))
    return RelaySettings(**parts[RelaySettings]), RunOptions(**parts[RunOptions])


def _value(name: str, value: Any, kind: str) -> Any:
    if name == "kafka_options":
        pairs = value.items() if isinstance(value, dict) else [_pair("--kafka-option", text) for text in value]
        return tuple((str(n), str(v)) for n, v in pairs)
    if name == "spark_conf" and isinstance(value, dict):
        return tuple(f"{n}={v}" for n, v in value.items())
    if kind == "int":
        try:
            return value if isinstance(value, int) else int(value)
        except ValueError:
            return duration_ms(str(value), name)
    if kind == "tuple[str, ...]":
        return (value,) if isinstance(value, str) else tuple(value)
    return Path(value) if kind == "Path" else str(value)


def _file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgumentError(f"{path} is no TOML: {error}") from error


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidArgumentError(f"{option} {text}: no value; allowed: NAME=VALUE")
    return name.strip(), value


def _run(settings: RelaySettings, running: RunOptions, metrics: str | None, parent_pid: int | None) -> int:
    from tarry.base.logs import log_to_stderr
    from tarry.base.placement import settle_memory
    from tarry.base.stop_signals import StopSignals
    from tarry.spark.runtime.process import follow_parent, kill_session
    from tarry.spark.runtime.session import end_jvm
    from tarry_relay.job import Relay

    log_to_stderr()
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stop = threading.Event()
    if parent_pid is not None:
        follow_parent(parent_pid, stop.set)
    job = Relay(settings, running)
    port = None if metrics is None else serve_metrics(job.status, str(metrics))
    settle_memory()
    with StopSignals() as signals:
        threading.Thread(target=_await_signal, args=(signals, stop), name="tarry-relay-signals", daemon=True).start()
        try:
            job.run(stop, output.json_line)
        finally:
            if port is not None:
                port.stop()
            end_jvm()
            if os.getsid(0) == os.getpid():
                kill_session(os.getpid(), spare_self=True)
    return 0


def _await_signal(signals: Any, stop: threading.Event) -> None:
    while not signals.wait(0.5):
        if stop.is_set():
            return
    stop.set()


def serve_metrics(status: RelayStatus, address: str) -> FiguresPort:
    """Serve the figures of a relay for Prometheus, until the port is stopped.

    ``address``: ``HOST:PORT``, or a port alone, on this machine alone.

    Raises:
        InvalidArgumentError: the address cannot be parsed.
        UnavailableError: it cannot be listened on.
    """
    from prometheus_client import CollectorRegistry

    from tarry.fronts.metrics.server import FiguresPort
    from tarry_relay.status import StatusCollector

    registry = CollectorRegistry()
    registry.register(StatusCollector(status))
    return FiguresPort(registry, f"127.0.0.1:{address}" if address.isdecimal() else address)
