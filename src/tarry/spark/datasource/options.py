"""The options of ``format("tarry")``: read once, on the driver.

A misspelt one is refused, not dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tarry.base.endpoint import split_addresses
from tarry.base.errors import InvalidArgumentError, InvalidMessageError
from tarry.link.address import FILES, TLS, is_tls, with_files
from tarry.link.credentials import find_token, token_in
from tarry.message.topics import check_topic
from tarry.spark.broker_client import BrokerClient

WAYS = ("auto", "bulk", "flight")
WHATS = ("pending", "delivered", "dead")
IF_COMMITTED = ("skip", "fail")
STARTS = ("group", "earliest", "latest")
JOB_BYTES_MAX = 200

_SPARK = ("path", "checkpointlocation", "queryname", "recursivefilelookup")
"""Options that Spark itself may add."""
_OF_TABLES = (
    *("owner", "provider", "location", "comment", "collation", "external", "is_managed_location", "table_type"),
    *("serialization.format", "view.query.out.numcols"),
)
"""Options that Spark adds for a table of SQL: the reserved properties of its catalogs.

``option.NAME`` is NAME again.
"""
_ADDRESS = re.compile(r"^(\[[0-9A-Fa-f:.]+\]|[^:/\s]+):(\d{1,5})$")

TLS_FILES = tuple(f"tls_{name}" for name in FILES)
WRITE = (
    "endpoint",
    "token",
    "tokenFile",
    "mode",
    "job",
    "ifCommitted",
    "topic",
    "due_ms",
    "delay_ms",
    "delay_level",
    "ttl_ms",
    "expire_ms",
    "tries",
    "tag",
    *TLS_FILES,
)
STREAM_WRITE = tuple(name for name in WRITE if name not in ("job", "ifCommitted"))
READ = (
    "endpoint",
    "token",
    "tokenFile",
    "what",
    "topic",
    "group",
    "after_ms",
    "until_ms",
    "start",
    "end",
    "columns",
    "pushFilters",
    *TLS_FILES,
)
STREAM_READ = (
    "endpoint",
    "token",
    "tokenFile",
    "topic",
    "group",
    "startingOffsets",
    "failOnDataLoss",
    "maxRowsPerTrigger",
    *TLS_FILES,
)
STREAM_ONLY = ("group", "startingOffsets", "failOnDataLoss", "maxRowsPerTrigger")
"""Options that tell a stream from a batch of pending messages."""

DEFAULTS_INT = ("due_ms", "delay_ms", "delay_level", "ttl_ms", "expire_ms", "tries")


@dataclass(frozen=True)
class BrokerPlace:
    """A broker, and the token to show to it, which goes with the job to its tasks.

    ``token`` None: nothing was found on the driver, and each process looks for itself.
    """

    endpoint: str
    token: str | None = field(default=None, repr=False)

    def client(self) -> BrokerClient:
        """Return a client of the broker, for this process."""
        return BrokerClient(self.endpoint, self.token)


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write. ``defaults``: values of columns for rows that have none."""

    broker: BrokerPlace
    way: str
    job: str | None
    if_committed: str
    defaults: dict[str, str | int]

    @classmethod
    def of(cls, given: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
        """Read and check the options of a write.

        Raises:
            InvalidArgumentError: names the option, its value and what is allowed.
        """
        options = _checked(given, STREAM_WRITE if streaming else WRITE)
        job = options.get("job")
        if job is not None and not 1 <= len(job.encode()) <= JOB_BYTES_MAX:
            raise InvalidArgumentError(
                f"option 'job' has {len(job.encode())} bytes: {job!r:.80}; allowed: 1 to {JOB_BYTES_MAX}"
            )
        defaults: dict[str, str | int] = {}
        for name in DEFAULTS_INT:
            if name in options:
                defaults[name] = _integer(options, name, -(1 << 31) if name == "delay_level" else 0)
        if "topic" in options:
            defaults["topic"] = _topic(options["topic"])
        if "tag" in options:
            defaults["tag"] = options["tag"]
        if_committed = _choice(options, "ifCommitted", IF_COMMITTED, "skip")
        return cls(_broker(options), _choice(options, "mode", WAYS, "auto"), job, if_committed, defaults)


@dataclass(frozen=True)
class ReadOptions:
    """Options of a batch read.

    ``topics`` empty: all; ``columns`` empty: all, else by their names in small letters.
    """

    broker: BrokerPlace
    what: str
    topics: tuple[str, ...]
    group: str | None
    after_ms: int | None
    until_ms: int | None
    start: int | None
    end: int | None
    columns: tuple[str, ...]
    push_filters: bool

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadOptions:
        """Read and check the options of a batch read.

        Raises:
            InvalidArgumentError: names the option, its value and what is allowed.
        """
        options = _checked(given, READ)
        what = _choice(options, "what", WHATS, "pending")
        for name, needed in (("group", "dead"), ("start", "delivered"), ("end", "delivered")):
            if name in options and what != needed:
                raise InvalidArgumentError(f"option {name!r} is for what={needed!r}; given: what={what!r}")
        after_ms, until_ms, start, end = (_maybe(options, name) for name in ("after_ms", "until_ms", "start", "end"))
        push = _choice(options, "pushFilters", ("true", "false"), "false") == "true"
        topics, group, columns = _topics(options), options.get("group"), _columns(options)
        return cls(_broker(options), what, topics, group, after_ms, until_ms, start, end, columns, push)


@dataclass(frozen=True)
class StreamOptions:
    """Options of a stream read."""

    broker: BrokerPlace
    topics: tuple[str, ...]
    group: str
    start: str
    fail_on_data_loss: bool
    rows_max: int | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> StreamOptions:
        """Read and check the options of a stream read.

        Raises:
            InvalidArgumentError: names the option, its value and what is allowed.
        """
        options = _checked(given, STREAM_READ)
        topics = _topics(options)
        for name in ("topic", "group"):
            if not options.get(name):
                raise InvalidArgumentError(f"option {name!r} is missing; a stream is read of a topic, by a group")
        rows_max = options.get("maxrowspertrigger")
        return cls(
            _broker(options),
            topics,
            options["group"],
            _choice(options, "startingOffsets", STARTS, "group"),
            _choice(options, "failOnDataLoss", ("true", "false"), "true") == "true",
            None if rows_max is None else _integer(options, "maxRowsPerTrigger", 1),
        )


def _checked(given: Mapping[str, str], allowed: tuple[str, ...]) -> dict[str, str]:
    """Return the options by their names in small letters, as Spark takes ``topic`` and ``Topic`` for one."""
    options = {name.lower(): value for name, value in given.items()}
    names = {name.lower() for name in allowed}
    for name in options:
        if name not in names and name not in _SPARK and name not in _OF_TABLES and not name.startswith("option."):
            raise InvalidArgumentError(f"unknown option {name!r}; allowed here: {', '.join(allowed)}")
    return options


def _broker(options: Mapping[str, str]) -> BrokerPlace:
    endpoint, token, name = _endpoint(options), options.get("token"), options.get("tokenfile")
    if token is not None and name is not None:
        raise InvalidArgumentError("options 'token' and 'tokenFile' are given; allowed: one of them")
    if name is not None:
        token = token_in(Path(name))
    return BrokerPlace(endpoint, token or find_token(endpoint))


def _endpoint(options: Mapping[str, str]) -> str:
    """Return the broker's address, which names the files of TLS as well: tasks have another environment."""
    endpoint = options.get("endpoint")
    if not endpoint:
        raise InvalidArgumentError(
            "option 'endpoint' is missing; needed: HOST:PORT of the broker's native port, "
            'as in .option("endpoint", "127.0.0.1:7611"); of a table in SQL, whose own options Spark does not pass on, '
            "WITH ('endpoint' = '127.0.0.1:7611') behind its name"
        )
    for each in split_addresses(endpoint):
        address = _ADDRESS.match(each.removeprefix(TLS).partition("?")[0] if is_tls(each) else each)
        if address is None or not 0 < int(address[2]) < 1 << 16:
            raise InvalidArgumentError(f"option 'endpoint' is {each!r}; allowed: HOST:PORT or tls://HOST:PORT")
    given = {name: options[f"tls_{name}"] for name in FILES if f"tls_{name}" in options}
    return with_files(endpoint, given, "option tls_{}")


def _choice(options: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = options.get(name.lower(), default).lower()
    if value not in allowed:
        raise InvalidArgumentError(f"option {name!r} is {value!r}; allowed: {', '.join(allowed)}")
    return value


def _integer(options: Mapping[str, str], name: str, least: int) -> int:
    text = options[name.lower()]
    if not re.fullmatch(r"[+-]?\d{1,19}", text.strip()) or not least <= int(text) < 1 << 63:
        raise InvalidArgumentError(f"option {name!r} is {text!r}; allowed: a whole number, {least} or more")
    return int(text)


def _maybe(options: Mapping[str, str], name: str) -> int | None:
    return _integer(options, name, 0) if name in options else None


def _topics(options: Mapping[str, str]) -> tuple[str, ...]:
    names = [name.strip() for name in options.get("topic", "").split(",") if name.strip()]
    return tuple(dict.fromkeys(_topic(name) for name in names))


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    if "columns" not in options:
        return ()
    names = [name.strip().lower() for name in options["columns"].split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"option 'columns' is {options['columns']!r}; allowed: names of columns with commas, each once"
        )
    return tuple(names)


def _topic(name: str) -> str:
    try:
        return check_topic(name)
    except InvalidMessageError as error:
        raise InvalidArgumentError(f"option 'topic': {error}") from error
