"""Options that several commands share, and the connection they talk through."""

from __future__ import annotations

import re
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.base.delay import datetime_ms, due_from_delay, parse_duration_ms
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.base.without_pandas import leave_pandas_out

if TYPE_CHECKING:
    from tarry.client import Client

DEFAULT_ENDPOINT = "127.0.0.1:7611"

Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint",
        "-e",
        metavar="HOST:PORT",
        envvar="TARRY_ENDPOINT",
        help="The broker; tls://HOST:PORT in TLS; A,B where another machine may take it over. One with identities is "
        "shown TARRY_TOKEN, or the token in the file TARRY_TOKEN_FILE.",
    ),
]
RoleData = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Instead: the process of a cache (--log), also a standby.")
]
Json = Annotated[bool, typer.Option("--json", help="Print data as JSON, one object a line.")]

SparkConf = Annotated[
    list[str] | None, typer.Option("--spark-conf", metavar="NAME=VALUE", help="A setting for Spark; repeatable.")
]
SparkConfFile = Annotated[
    Path | None, typer.Option("--spark-conf-file", metavar="FILE", help="More of them, as in spark-defaults.conf.")
]


def connect(endpoint: str) -> Client:
    """Return a client of the broker at ``endpoint``; close it, or use it in a ``with`` block."""
    leave_pandas_out()
    from tarry.client import Client
    from tarry.link.places import BrokerPlaces

    return Client(BrokerPlaces.of(endpoint))


def check_topic_is_known(client: Client, topic: str | None) -> None:
    """Check a topic in which a command found nothing: a misspelt name must not read as an empty topic.

    Raises:
        NotFoundError: no message, group or setting has ever named it.
    """
    if topic is not None and not client.has_topic(topic):
        raise NotFoundError(f"there is no topic {topic!r:.300}; tarry pending and tarry group list show those that are")


def not_empty(value: str | None, option: str) -> None:
    """Refuse an empty name, which as a rule is a variable of a script that is not set.

    Raises:
        InvalidArgumentError: it is empty.
    """
    if value == "":
        raise InvalidArgumentError(f"{option} is empty; allowed: a name, or none of it")


Start = Annotated[str | None, typer.Option("--start", help="Where a new group begins: earliest or latest.")]
Delayed = Annotated[str | None, typer.Option("--delay", "-d", help="1h30m, 500ms, 2d; a number is in seconds.")]
Due = Annotated[str | None, typer.Option("--due", help="Instead: 2026-12-01T06:00:00Z, or UTC milliseconds.")]
Level = Annotated[int | None, typer.Option("--level", help="Instead: a delay level, as RocketMQ has them.")]


def when(delay: str | None, due: str | None, level: int | None = None) -> tuple[str, int]:
    """Return the column and value that ``--delay``, ``--level`` or ``--due`` mean; at once without any.

    ``delay_ms`` or ``delay_level``, which the broker resolves, or ``due_ms``.

    Raises:
        InvalidArgumentError: two are given, or one means nothing.
    """
    ways = {"--delay": delay, "--due": due, "--level": level}
    given = [f"{option} {value}" for option, value in ways.items() if value is not None]
    if len(given) > 1:
        raise InvalidArgumentError(f"{given[0]} and {given[1]} are both given; allowed: one of them")
    if due is not None:
        return "due_ms", instant_ms(due, "--due")
    if level is not None:
        return "delay_level", level
    return "delay_ms", 0 if delay is None else duration_ms(delay, "--delay")


def expiry_ms(text: str, option: str) -> int:
    """UTC milliseconds of an instant, or of now and a duration, as in 30d.

    Raises:
        InvalidArgumentError: for anything else; names the option.
    """
    if re.fullmatch(r"\s*([0-9]+\s*(ms|[smhdw])\s*)+", text):
        return time.time_ns() // 1_000_000 + parse_duration_ms(text)
    return instant_ms(text, option)


def duration_ms(text: str, option: str) -> int:
    """Milliseconds of "1h30m", or of a bare number, which is in seconds.

    Raises:
        InvalidArgumentError: for anything else; names the option.
    """
    if re.fullmatch(r"-?[0-9]+(\.[0-9]*)?", text.strip()):
        return due_from_delay(float(text), 0, name=option)
    try:
        return parse_duration_ms(text)
    except InvalidArgumentError as error:
        raise type(error)(f"{option}: {error}") from error


def instant_ms(text: str, option: str) -> int:
    """UTC milliseconds of an instant with a time zone, or of a number, which they are.

    Raises:
        InvalidArgumentError: for anything else; names the option.
    """
    if re.fullmatch(r"[0-9]{1,18}", text.strip()):
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            raise ValueError("no time zone")
        return datetime_ms(moment)
    except ValueError as error:
        allowed = "an instant with a time zone, as in 2026-12-01T06:00:00Z, or UTC milliseconds"
        raise InvalidArgumentError(f"{option} {text!r} is not an instant; allowed: {allowed}") from error
