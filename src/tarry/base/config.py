"""Every setting, in one typed place: what it is called, its unit, its default, and what it may be.

A setting comes from, in falling order of precedence: the command line, the environment (``TARRY_HORIZON_MS=30000``), a
TOML file, the default here. Names carry their unit; where that is ``ms`` or ``bytes``, ``"10m"`` and ``"64MiB"`` are
taken too.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from tarry.base.delay import DELAY_MS_MAX, ROCKETMQ_LEVELS
from tarry.base.errors import InvalidArgumentError
from tarry.base.setting_types import (
    ADDRESS,
    BYTES_LIMIT,
    COUNT_LIMIT,
    DELAY_MS_LIMIT,
    Address,
    Bytes,
    Count,
    Directory,
    GatewayAddress,
    Levels,
    Listeners,
    Milliseconds,
    Networks,
    Optional,
    Ports,
    RocketMQName,
    SparkConf,
)
from tarry.base.spark_conf import without_secrets

ENV_PREFIX = "TARRY_"
NOT_SETTINGS = frozenset({"TARRY_CONFIG", "TARRY_ENDPOINT"})
"""Variables with our prefix that are no settings: the file of settings, and the clients' broker."""

# A Kubernetes service called "tarry" or "tarry-NAME" puts these into the environment of every pod beside it.
_SERVICE_LINK = re.compile(r"TARRY_(.*_)?(PORT|PORT_[0-9].*|SERVICE_HOST|SERVICE_PORT.*)")


class Config(BaseSettings):
    """Settings of one broker: as given, else from the environment, else the default; no file is read.

    Raises:
        InvalidArgumentError: an unknown name, or a value that is not allowed.
    """

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    data: Directory = Field(
        Path("tarry-data"), description="Directory of the logs, and of the store where it is local."
    )
    store: Optional = Field(None, description="URI of the store's Delta table; empty: DATA/store.")
    shard: Count = Field(0, ge=0, le=999, description="This broker's part of the store.")

    flight: Address = Field("127.0.0.1:7611", description="HOST:PORT of the Arrow Flight front; empty: off.")
    flight_advertised: Address = Field(
        None, description="HOST:PORT by which Spark's executors reach the Flight front; empty: as the broker does."
    )
    flight_calls_max: Count = Field(
        1_000, ge=2, description="Most calls of Flight clients at a time; one peer address has half of it."
    )
    insecure_open: Listeners = Field(
        "", description='Ports without authentication that may be open to other machines: "flight".'
    )
    rocketmq: Address = Field(None, description="HOST:PORT of the RocketMQ front (gRPC, v5 clients); empty: off.")
    remoting: Address = Field(
        None, description="HOST:PORT of the classic RocketMQ front (remoting, 4.x and 5.x clients); empty: off."
    )
    http: Address = Field(None, description="HOST:PORT of the HTTP front (lmstfy's API, Tarry's own); empty: off.")
    http_admin: Address = Field(None, description="HOST:PORT of lmstfy's admin API, beside `http`; empty: off.")
    http_access: Literal["auto", "open", "tokens"] = Field(
        "auto", description="REST and console need access tokens, or not; auto: not where only this machine gets."
    )
    remoting_queues: Count = Field(
        4,
        ge=1,
        le=1024,
        description="Queues of a topic, to classic RocketMQ clients: so many consumers of a group share it.",
    )
    remoting_vip: Literal["on", "off"] = Field(
        "on", description="Listen on the port below `remoting` by 2, too, where it is free, for clients before 4.5."
    )
    remoting_pull_max: Count = Field(
        32,
        ge=1,
        le=1024,
        description="Messages of one pull of a classic RocketMQ client, at most; it asks for up to so many.",
    )
    rocketmq_cluster: RocketMQName = Field(
        "DefaultCluster", description="What the cluster is called to RocketMQ's clients and tools (mqadmin -c)."
    )
    rocketmq_broker: RocketMQName = Field(
        "tarry", description="What the broker is called to them; clients keep it with offsets and handles."
    )
    rocketmq_keys: Optional = Field(
        None, description="File of ACCESS_KEY SECRET lines; with it, RocketMQ clients must sign. Empty: all may."
    )
    rocketmq_tls: Literal["both", "on", "off"] = Field(
        "both", description="RocketMQ clients come by TLS, in the clear, or as they like."
    )
    rocketmq_tls_certificate: Optional = Field(
        None, description="PEM file of the certificate chain; empty: one signed by itself is made in DATA."
    )
    rocketmq_tls_key: Optional = Field(None, description="PEM file of the certificate's private key.")
    rocketmq_create_topics: Literal["on", "off"] = Field(
        "on", description="RocketMQ clients make a topic by naming it; off: it must be there (tarry topic set)."
    )
    rocketmq_check_first_ms: Milliseconds = Field(
        6_000, ge=1, description="How old an undecided transaction is when its producer is first asked."
    )
    rocketmq_check_ms: Milliseconds = Field(30_000, ge=1_000, description="How often it is asked again...")
    rocketmq_checks_max: Count = Field(15, ge=1, description="...and how often in all; then it is a dead letter.")

    workers: Count = Field(
        0, ge=0, le=256, description="Processes of the RocketMQ front (v5), beside the broker's; 0: it is inside."
    )
    gateway: GatewayAddress = Field(
        None,
        description="HOST:PORT or unix:PATH where gateways connect; empty: a socket in DATA if there are workers.",
    )
    gateway_secret: Optional = Field(
        None, description="File of a secret of 16 bytes or more that gateways by TCP must have, too; needed there."
    )
    gateway_tls_certificate: Optional = Field(
        None, description="PEM file of the certificate chain that gateways by TCP see; empty: no TLS."
    )
    gateway_tls_key: Optional = Field(None, description="PEM file of that certificate's private key.")
    gateway_tls_ca: Optional = Field(
        None, description="At a gateway: PEM file of who signs its broker's certificate; empty: no TLS."
    )

    metrics: Address = Field(None, description="HOST:PORT of Prometheus metrics, over HTTP; empty: off.")

    push: Literal["on", "off"] = Field("on", description="Push messages to the URLs of push subscriptions.")
    push_private_addresses: Networks = Field(
        "off", description='Private addresses that may be pushed to: networks, as in "10.0.0.0/8 fd00::/8"; on: all.'
    )
    push_ports: Ports = Field("all", description="Ports that may be pushed to.")
    push_ca_file: Optional = Field(
        None, description="PEM file of certificate authorities that are trusted beside the system's."
    )

    pipeline: Literal["on", "off"] = Field("on", description="Start and supervise the Spark pipeline.")
    spark_master: str = Field("local[*]", min_length=1, description="Spark master of the pipeline.")
    spark_memory: str = Field("1g", pattern=r"^[0-9]+[kmgtKMGT]$", description="Memory of the pipeline's driver JVM.")
    spark_conf: SparkConf = Field("", description="Settings for the pipeline's Spark, NAME=VALUE, one a line.")
    spark_conf_file: Optional = Field(
        None, description="File with more of them, as in spark-defaults.conf; those of spark_conf win."
    )
    schedule_interval_ms: Milliseconds = Field(
        60_000, ge=100, description="The schedule query commits at least this often..."
    )
    schedule_bytes: Bytes = Field(256 << 20, ge=1, description="...or when this many bytes of intake wait.")
    schedule_rows_max: Count = Field(4_000_000, ge=1, description="Most messages in one batch of the schedule query.")
    compact_interval_ms: Milliseconds = Field(
        60_000, ge=0, description="How often the store's files are looked after (merged, cut, expired); 0: never."
    )
    compact_tasks: Count = Field(
        0,
        ge=0,
        le=1024,
        description="Most tasks at once that rewrite files of the store; 0: half of the executors' cores.",
    )
    compact_file_bytes: Bytes = Field(
        256 << 20, ge=1 << 20, le=1 << 30, description="Largest file that is made of others; a task needs twice that."
    )
    store_retention_ms: Milliseconds = Field(
        86_400_000, ge=3_600_000, description="How long files stay that the store has replaced or let expire."
    )

    delay_ms_max: Milliseconds = Field(DELAY_MS_MAX, ge=1, description="The one documented limit of a delay.")
    delay_levels: Levels = Field(ROCKETMQ_LEVELS, description="What RocketMQ's delay levels mean.")
    body_bytes_max: Bytes = Field(4 << 20, ge=1, le=128 << 20, description="Largest body.")
    properties_bytes_max: Bytes = Field(
        64 << 10, ge=0, le=16 << 20, description="Largest sum of a message's properties."
    )
    topics_max: Count = Field(10_000, ge=1, description="Most topics; messages for more new ones are refused.")
    groups_max: Count = Field(10_000, ge=1, description="Most consumer groups of all topics together.")

    share_core: Literal["on", "off"] = Field("on", description="Threads that pass small batches on share a core.")
    horizon_ms: Milliseconds = Field(60_000, ge=10, description="How far ahead the wheel is filled.")
    wheel_bytes_max: Bytes = Field(
        96 << 20, ge=1 << 10, description="Memory of the wheel; above it the horizon shrinks."
    )
    ready_cache_bytes_max: Bytes = Field(
        32 << 20, ge=0, description="Ready messages kept in memory for waiting consumers."
    )
    inflight_bytes_max: Bytes = Field(
        128 << 20, ge=1 << 10, description="Accepted and not yet durable; above it: overloaded."
    )
    segment_bytes_max: Bytes = Field(
        64 << 20, ge=4 << 10, le=1 << 30, description="Size at which a log starts its next file."
    )
    disk_free_bytes_min: Bytes = Field(512 << 20, ge=0, description="Free disk below which producers are refused.")
    retention_ms: Milliseconds = Field(
        3 * 86_400_000, ge=0, description="How long ready messages are kept for groups that do not ack."
    )

    dedupe_ms: Milliseconds = Field(
        600_000, ge=0, description="For how long a second message with the same id and topic is a duplicate; 0: never."
    )
    repeat_ms_min: Milliseconds = Field(1_000, ge=1, description="Shortest interval of a series.")
    missed_after_ms: Milliseconds = Field(
        60_000, ge=0, description="An occurrence of a series that is later than this was missed."
    )

    lease_ms: Milliseconds = Field(30_000, ge=1, description="Default lease of a message handed to a consumer.")
    retry_ms: Milliseconds = Field(1_000, ge=0, description="Default back-off after a nack.")
    checkpoint_interval_ms: Milliseconds = Field(1_000, ge=1, description="How often progress is made durable.")
    scrub_bytes_per_s: Bytes = Field(
        4 << 20, ge=0, description="So much is read while serving to check files for damage, once a day; 0: nothing."
    )

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise _refusal(error) from None

    @property
    def store_uri(self) -> str:
        """Place of the store: a URI or an absolute path, the same in any working directory."""
        if self.store is None:
            return str(self.data.absolute() / "store")
        return self.store if ":/" in self.store else str(Path(self.store).absolute())

    def anchored(self) -> Config:
        """Return the settings with absolute paths, for a process that changes its directory."""
        return self.model_copy(update={"data": self.data.absolute(), "store": self.store_uri})


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, each with its origin: "command line", "environment", the file's path, or "default"."""

    config: Config
    origins: Mapping[str, str]
    unknown_variables: tuple[str, ...] = ()
    """``TARRY_…`` in the environment that is no setting. Not refused: others put variables there, too."""

    def to_toml(self) -> str:
        """Return all settings as a configuration file.

        Used as one, it gives the same settings, but for secrets among those for Spark, which are named instead.
        """
        return "\n\n".join(self._entries()) + "\n"

    def _entries(self) -> Iterator[str]:
        yield "# Every setting of Tarry. Precedence: command line, environment (TARRY_NAME), this file, default."
        for name, field in Config.model_fields.items():
            about = f"# {field.description}\n# Allowed: {allowed(name)}. From: {self.origins[name]}."
            value = getattr(self.config, name)
            if name == "spark_conf":
                value, hidden = without_secrets(value)
                about += f"\n# Not shown; give them where this file is used: {', '.join(hidden)}." if hidden else ""
            yield f"{about}\n{name} = {_toml(value)}"


def load(
    file: Path | None = None, flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] = os.environ
) -> Loaded:
    """Load the settings of a broker, from everywhere.

    Args:
        file: a TOML file; without it the one that ``TARRY_CONFIG`` names, if any.
        flags: what the command line gives; None means not given.
        environment: of which the variables ``TARRY_…`` count; see :attr:`Loaded.unknown_variables`.

    Raises:
        InvalidArgumentError: names the setting, its value, what is allowed, and where it was given.
    """
    if file is None and environment.get("TARRY_CONFIG"):
        file = Path(environment["TARRY_CONFIG"])
    given, unknown_variables = _from_environment(environment)
    layers = [
        ("default", {name: field.default for name, field in Config.model_fields.items()}),
        (str(file), {} if file is None else _read(file)),
        ("environment", given),
        ("command line", {name: value for name, value in (flags or {}).items() if value is not None}),
    ]
    settings: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers:
        for name in layer:
            if name not in Config.model_fields:
                raise InvalidArgumentError(f"{_unknown(name)} ({origin})")
        settings.update(layer)
        origins.update(dict.fromkeys(layer, origin))
    config = Config.__new__(Config)
    try:
        # Not Config(), whose refusals do not know the origin. Each setting is given, so that none is looked up again.
        BaseSettings.__init__(config, **settings)
    except ValidationError as error:
        raise _refusal(error, origins) from None
    return Loaded(config, origins, unknown_variables)


def allowed(name: str) -> str:
    """Return the allowed values of a setting, for people."""
    field = Config.model_fields[name]
    if get_args(field.annotation) and not _optional(field):
        return " or ".join(map(repr, get_args(field.annotation))).replace("'", '"')
    low, high = (next((getattr(m, side) for m in field.metadata if hasattr(m, side)), None) for side in ("ge", "le"))
    high = None if high in (BYTES_LIMIT, DELAY_MS_LIMIT, COUNT_LIMIT) else high
    limits = "" if low is None else f", {low} or more" if high is None else f", {low} to {high}"
    if "_ms" in name:
        return f'milliseconds or a text like "10m"{limits}'
    if "bytes" in name:
        return f'bytes or a text like "64MiB"{limits}'
    if field.annotation is int:
        return f"a whole number{limits}"
    if ADDRESS in field.metadata:
        return 'HOST:PORT, or "" for none'
    return {
        "gateway": 'HOST:PORT or unix:PATH, or "" for the default',
        "insecure_open": '"flight", or "" for none',
        "push_private_addresses": 'networks, as in "10.0.0.0/8 fd00::/8", "on" or "off"',
        "push_ports": 'ports and ranges, as in "80 443 8000-9000", or "all"',
        "delay_levels": 'durations, as in "1s 5s 1m"',
        "rocketmq_cluster": "1 to 100 of A-Z a-z 0-9 _ -",
        "rocketmq_broker": "1 to 100 of A-Z a-z 0-9 _ -",
        "spark_memory": 'a number with k, m, g or t, as in "2g"',
        "spark_conf": 'lines such as "spark.ui.enabled=true", without spark.master and spark.sql.session.timeZone',
        "spark_conf_file": 'a path, or "" for none',
        "store": 'a path or URI, or "" for the default',
    }.get(name, "a path" if field.annotation is Path else "a text")


def _optional(field: FieldInfo) -> bool:
    return type(None) in get_args(field.annotation)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise InvalidArgumentError(f"configuration file {file}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"configuration file {file} is not TOML: {error}") from error


def _from_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the settings among the variables, and the unknown names with our prefix."""
    ours = {variable: variable.removeprefix(ENV_PREFIX).lower() for variable in environment if _is_ours(variable)}
    settings = {name: environment[variable] for variable, name in ours.items() if name in Config.model_fields}
    return settings, tuple(sorted(variable for variable, name in ours.items() if name not in settings))


def _is_ours(variable: str) -> bool:
    return variable.startswith(ENV_PREFIX) and variable not in NOT_SETTINGS and not _SERVICE_LINK.fullmatch(variable)


def _unknown(name: str) -> str:
    return f"unknown setting {name!r}; allowed: {', '.join(sorted(Config.model_fields))}"


def _refusal(error: ValidationError, origins: Mapping[str, str] | None = None) -> InvalidArgumentError:
    first = error.errors()[0]
    name = str(first["loc"][0])
    if name not in Config.model_fields:
        return InvalidArgumentError(_unknown(name))
    origin = f" ({origins[name]})" if origins else ""
    if name == "spark_conf":  # it may have secrets in it, so it is not shown as a whole
        return InvalidArgumentError(f"{name} is refused{origin}: {first.get('ctx', {}).get('error', first['msg'])}")
    return InvalidArgumentError(f"{name} is {first['input']!r}{origin}; allowed: {allowed(name)}")


def _toml(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    # JSON's strings are TOML's, but for DEL.
    return json.dumps("" if value is None else str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
