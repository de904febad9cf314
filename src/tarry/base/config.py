"""Settings of a broker, each in one typed place: its name, unit, default, and allowed values.

A setting comes from, in falling order of precedence: the command line, the environment (``TARRY_HORIZON_MS=30000``), a
TOML file, the default here. Fronts declare their own settings, which :func:`composed` adds to these. Names carry their
unit; where that is ``ms`` or ``bytes``, ``"10m"`` and ``"64MiB"`` are taken too.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from tarry.base.delay import DELAY_MS_MAX, ROCKETMQ_LEVELS
from tarry.base.errors import InvalidArgumentError
from tarry.base.setting_types import (
    BYTES_LIMIT,
    COUNT_LIMIT,
    DELAY_MS_LIMIT,
    Address,
    Allowed,
    Bytes,
    Collector,
    Count,
    Directory,
    Issuers,
    Levels,
    LogLevel,
    Milliseconds,
    Networks,
    Optional,
    Ports,
    SparkConf,
    SparkMaster,
    Takeover,
)
from tarry.base.spark_conf import without_secrets
from tarry.base.toml_text import quoted

ENV_PREFIX = "TARRY_"
NOT_SETTINGS = frozenset(
    f"TARRY_{name}" for name in ("CONFIG", "ENDPOINT", "CA", "CERTIFICATE", "KEY", "TOKEN", "TOKEN_FILE", "AMQP_URL")
)
"""Variables with our prefix that are no settings: the file of settings, those of clients and bridges."""

_TOLD_IN_PART = ("spark_conf", "jwt_issuers")
"""Settings of several parts: a refusal says which is wrong, without what may be a secret."""

# A Kubernetes service called "tarry" or "tarry-NAME" puts these into the environment of every pod beside it.
_SERVICE_LINK = re.compile(r"TARRY_(.*_)?(PORT|PORT_[0-9].*|SERVICE_HOST|SERVICE_PORT.*)")


class Config(BaseModel):
    """Settings of one broker: as given, else from the environment, else the default; no file is read.

    Raises:
        InvalidArgumentError: an unknown name, or a value that is not allowed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    data: Directory = Field(
        Path("tarry-data"), description="Directory of the logs, and of the store where it is local."
    )
    store: Optional = Field(None, description="URI of the store's Delta table; empty: DATA/store.")
    log: Optional = Field(
        None,
        description="URI of an object store that keeps the logs, s3://BUCKET/PREFIX, so that another machine can take "
        "over; DATA is a cache then. Empty: they are in DATA.",
    )
    log_interval_ms: Milliseconds = Field(
        0, ge=0, le=1000, description="With log: shortest time between two writes to it; longer is cheaper, and slower."
    )
    takeover: Takeover = Field(
        "silent",
        description="With log, when another broker owns the logs and writes. silent: it is refused to start; auto: it "
        "stands by, and takes over when that writes nothing any more, or it is told to; manual: it stands by, and "
        "takes over when it is told to; now: it takes over at once.",
    )
    test_clock: Optional = Field(
        None,
        description="For tests: the clock stands still until it is told to move (`tarry advance`). now, or the instant "
        "at which it begins, as 2027-01-01T00:00:00Z; DATA can be used by such brokers alone. Empty: the real clock.",
    )
    takeover_grace_ms: Milliseconds = Field(
        0,
        ge=0,
        description="With log: so long after a takeover, groups hand out nothing of what was ready before, for "
        "consumers that still work on what they had of the former broker.",
    )
    shard: Count = Field(0, ge=0, le=999, description="This broker's part of the store.")

    flight_advertised: Address = Field(
        None, description="HOST:PORT by which Spark's executors reach the Flight front; empty: as the broker does."
    )
    push_private_addresses: Networks = Field(
        "off", description='Private addresses that may be pushed to: networks, as in "10.0.0.0/8 fd00::/8"; on: all.'
    )
    push_ports: Ports = Field("all", description="Ports that may be pushed to.")

    jwt_issuer: Optional = Field(
        None, description="Provider whose JSON Web Tokens are credentials, as they name it (iss); empty: none are."
    )
    jwt_audience: Optional = Field(None, description="What its tokens for this broker have as audience (aud).")
    jwt_keys_file: Optional = Field(
        None, description="File of its public keys, a JSON Web Key Set (JWKS); empty: they are fetched."
    )
    jwt_keys_url: Optional = Field(
        None, description="URL of its public keys; empty: the one that `jwt_issuer` publishes (OIDC Discovery)."
    )
    jwt_client_id: Optional = Field(
        None, description="Name of the console at the provider, for logins by it; empty: there are none."
    )
    jwt_client_secret_file: Optional = Field(
        None, description="File of the secret of `jwt_client_id`; empty: the provider asks for none."
    )
    jwt_scopes: str = Field("openid", description="Scopes that the provider is asked for at a login.")
    jwt_issuers: Issuers = Field(
        None, description="Providers by name, each with what these settings have without `jwt_`; beside `jwt_issuer`."
    )
    jwt_private_addresses: Networks = Field(
        "off", description='Private addresses of providers: networks, as in "10.0.0.0/8 127.0.0.1"; on: all.'
    )
    jwt_ca_file: Optional = Field(
        None, description="PEM file of authorities that are trusted for providers, beside the system's."
    )

    pipeline: Literal["on", "off"] = Field("on", description="Start and supervise the Spark pipeline.")
    spark_master: SparkMaster = Field("local[*]", min_length=1, description="Spark master of the pipeline.")
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

    log_level: LogLevel = Field("info", description="What is logged to stderr, by module, too.")
    log_format: Literal["text", "json"] = Field("text", description="The form of a line of the log.")
    otlp_endpoint: Collector = Field(
        None,
        description="Collector that gets spans of messages with a sampled traceparent, by OTLP over HTTP; empty: none.",
    )
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

    audit_log: Literal["on", "off"] = Field(
        "on", description="Write down who changed what and who was refused, in DATA/audit (tarry serve alone does)."
    )
    audit_log_copy: Literal["stderr", "off"] = Field("off", description="Where each line goes, too, as JSON.")
    audit_log_file_bytes: Bytes = Field(
        16 << 20, ge=4 << 10, le=1 << 30, description="Size at which the audit log starts its next file."
    )
    audit_log_bytes_max: Bytes = Field(
        1 << 30, ge=4 << 10, description="All files of the audit log; beyond it, the oldest is deleted."
    )
    audit_log_retention_ms: Milliseconds = Field(
        365 * 86_400_000, ge=0, description="How long lines of the audit log are kept."
    )

    def __init__(self, **settings: Any) -> None:
        given, _ = _from_environment(type(self), os.environ)
        try:
            super().__init__(**(given | settings))
        except ValidationError as error:
            raise _refusal(type(self), error) from None

    @property
    def store_uri(self) -> str:
        """Place of the store: a URI or an absolute path, the same in any working directory."""
        if self.store is None:
            return str(self.data.absolute() / "store")
        return self.store if ":/" in self.store else str(Path(self.store).absolute())

    def anchored(self) -> Config:
        """Return the settings with absolute paths, for a process that changes its directory."""
        return self.model_copy(update={"data": self.data.absolute(), "store": self.store_uri})


def composed(sections: Iterable[type[BaseModel]]) -> type[Config]:
    """Return a class of settings that has the fields of these sections as well.

    An object of it is one of each section, too.
    """
    bases: tuple[type[Any], ...] = (Config, *sections)
    return create_model("Config", __base__=bases)


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
        for name, field in type(self.config).model_fields.items():
            about = f"# {field.description}\n# Allowed: {allowed(name, field)}. From: {self.origins[name]}."
            value = getattr(self.config, name)
            if name == "spark_conf":
                value, hidden = without_secrets(value)
                about += f"\n# Not shown; give them where this file is used: {', '.join(hidden)}." if hidden else ""
            yield f"{about}\n{name} = {_toml(name, value)}"


def load(
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    model: type[Config] = Config,
) -> Loaded:
    """Load the settings of a broker, from everywhere.

    Args:
        file: a TOML file; without it the one that ``TARRY_CONFIG`` names, if any.
        flags: what the command line gives; None means not given.
        environment: of which the variables ``TARRY_…`` count; see :attr:`Loaded.unknown_variables`.
        model: the class of the settings, which fronts may have extended (:func:`composed`).

    Raises:
        InvalidArgumentError: names the setting, its value, what is allowed, and where it was given.
    """
    if file is None and environment.get("TARRY_CONFIG"):
        file = Path(environment["TARRY_CONFIG"])
    given, unknown_variables = _from_environment(model, environment)
    layers = [
        ("default", {name: field.default for name, field in model.model_fields.items()}),
        (str(file), {} if file is None else _read(file)),
        ("environment", given),
        ("command line", {name: value for name, value in (flags or {}).items() if value is not None}),
    ]
    settings: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers:
        for name in layer:
            if name not in model.model_fields:
                raise InvalidArgumentError(_unknown(model, name, origin))
        settings.update(layer)
        origins.update(dict.fromkeys(layer, origin))
    config = model.__new__(model)
    try:
        # Not Config(), which looks into the environment itself, and whose refusals do not know the origin.
        BaseModel.__init__(config, **settings)
    except ValidationError as error:
        raise _refusal(model, error, origins) from None
    return Loaded(config, origins, unknown_variables)


def allowed(name: str, field: FieldInfo) -> str:
    """Return the allowed values of a setting, for people."""
    told = next((each.text for each in field.metadata if isinstance(each, Allowed)), None)
    if told is not None:
        return told
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
    return {
        "spark_memory": 'a number with k, m, g or t, as in "2g"',
        "spark_conf_file": 'a path, or "" for none',
        "store": 'a path or URI, or "" for the default',
        "test_clock": 'now, an instant as 2027-01-01T00:00:00Z, or "" for the real clock',
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


def _from_environment(model: type[Config], environment: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the settings among the variables, and the unknown names with our prefix."""
    ours = {variable: variable.removeprefix(ENV_PREFIX).lower() for variable in environment if _is_ours(variable)}
    settings = {name: environment[variable] for variable, name in ours.items() if name in model.model_fields}
    return settings, tuple(sorted(variable for variable, name in ours.items() if name not in settings))


def _is_ours(variable: str) -> bool:
    return variable.startswith(ENV_PREFIX) and variable not in NOT_SETTINGS and not _SERVICE_LINK.fullmatch(variable)


def _unknown(model: type[Config], name: str, origin: str | None = None) -> str:
    near = get_close_matches(name, model.model_fields, n=1)
    notes = [note for note in (origin, f"is it {near[0]}?" if near else None) if note]
    told = f" ({'; '.join(notes)})" if notes else ""
    known = "those that tarry serve --print-config shows" if near else ", ".join(sorted(model.model_fields))
    return f"unknown setting {name!r}{told}; allowed: {known}"


def _refusal(
    model: type[Config], error: ValidationError, origins: Mapping[str, str] | None = None
) -> InvalidArgumentError:
    first = error.errors()[0]
    name = str(first["loc"][0])
    if name not in model.model_fields:
        return InvalidArgumentError(_unknown(model, name))
    origin = f" ({origins[name]})" if origins else ""
    if name in _TOLD_IN_PART:
        return InvalidArgumentError(f"{name} is refused{origin}: {first.get('ctx', {}).get('error', first['msg'])}")
    told = allowed(name, model.model_fields[name])
    if first["type"] == "less_than_equal" and (high := str(first["ctx"]["le"])) not in told:
        told = f"{told}, and no more than {high}"
    return InvalidArgumentError(f"{name} is {first['input']!r}{origin}; allowed: {told}")


def _toml(name: str, value: object) -> str:
    if isinstance(value, int) or (name == "jwt_issuers" and value is not None):  # a table, as it is written
        return str(value)
    return quoted("" if value is None else str(value))
