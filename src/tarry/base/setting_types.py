"""Kinds of settings: how each is read from a text, and its allowed values.

A validator raises ValueError, as pydantic has it; what is allowed is said by :func:`tarry.base.config.allowed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from tarry.base.addresses import parse_networks, parse_ports
from tarry.base.delay import parse_duration_ms, parse_levels
from tarry.base.endpoint import parse_address, socket_path
from tarry.base.errors import InvalidArgumentError
from tarry.base.exposure import parse_listeners
from tarry.base.issuer_settings import check_provider_url
from tarry.base.issuer_table import ALLOWED as ISSUERS_ALLOWED
from tarry.base.issuer_table import issuers_line, parse_issuers
from tarry.base.logs import LEVEL_ALLOWED
from tarry.base.logs import parse_levels as parse_log_levels
from tarry.base.spark_conf import parse_lines

T = TypeVar("T", str, str | None)

DELAY_MS_LIMIT = 1000 * 366 * 86_400_000
"""Highest ``delay_ms_max``, 1,000 years: instants stay well inside of int64 and of the calendar."""

BYTES_LIMIT = 1 << 60
"""The most that a setting in bytes may be."""

COUNT_LIMIT = 1 << 31
"""The most that a number may be."""

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BINARY_UNITS = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
# More digits than any value that is allowed: what is too much is refused as that, and not as no number.
_SIZE = re.compile(r"([0-9]{1,64})\s*([kmgt]i?)?b?", re.IGNORECASE)
_WHOLE_MS = re.compile(r"\s*-?[0-9]{1,64}\s*")


def parse_size(text: str) -> int:
    """Bytes of a text such as ``"64MiB"``, ``"10MB"`` or ``"4096"``.

    Raises:
        ValueError: for anything else.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("not a size")
    return int(match[1]) * {**_UNITS, **_BINARY_UNITS}[(match[2] or "").lower()]


def _bytes(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else _no_bool(value)


def _milliseconds(value: object) -> object:
    if not isinstance(value, str) or _WHOLE_MS.fullmatch(value):
        return _no_bool(value)
    try:
        return parse_duration_ms(value)
    except InvalidArgumentError as error:
        raise ValueError("not a duration") from error


def _no_bool(value: object) -> object:
    # Pydantic would take true for 1.
    if isinstance(value, bool):
        raise ValueError("a truth value")  # noqa: TRY004  pydantic reports a ValueError only
    return value


def _empty_is_none(value: object) -> object:
    return None if value == "" else value


def checked(parse: Callable[[str], object]) -> Callable[[T], T]:
    """Refuse what ``parse`` refuses; the text stays as it is."""

    def check(value: T) -> T:
        if value is not None:
            try:
                parse(value)
            except InvalidArgumentError as error:
                raise ValueError(str(error)) from error
        return value

    return check


def _spark_conf(value: object) -> object:
    """Turn a table or a list of a file into lines."""
    if isinstance(value, Mapping):
        value = [f"{name}={text}" for name, text in value.items()]
    if isinstance(value, list | tuple):
        value = "\n".join(map(str, value))
    if isinstance(value, str):
        try:
            parse_lines(value)
        except InvalidArgumentError as error:
            raise ValueError(str(error)) from error
    return value


def _issuers(value: object) -> str | None:
    """Turn a table of a file into a line."""
    if value is None:
        return None
    try:
        line = issuers_line(value)
        parse_issuers(line)
    except InvalidArgumentError as error:
        raise ValueError(str(error)) from error
    return line


def _origin(value: str | None) -> str | None:
    """Take the slash away that people write at the end."""
    if value is None:
        return None
    origin = checked(lambda url: check_provider_url(url, "it"))(value).removesuffix("/")
    if urlsplit(origin).path or "?" in origin:
        raise ValueError("it has more than a host and a port")
    return origin


def _collector(value: str | None) -> str | None:
    if value is not None:
        url = urlsplit(value)
        if url.scheme not in ("http", "https") or not url.hostname or "@" in url.netloc or url.query or url.fragment:
            raise ValueError("no URL of a collector")
        _ = url.port  # raises ValueError for one that is none
    return value


def _spark_master(value: str, of: ValidationInfo) -> str:
    """Refuse what spark-submit refuses, where there is a pipeline to start."""
    if of.data.get("pipeline") == "on" and value != "yarn" and not value.startswith(("spark", "k8s", "local")):
        raise ValueError("no master")
    return value


@dataclass(frozen=True, slots=True)
class Allowed:
    """Allowed values of a setting, in words; part of its annotation."""

    text: str


_ADDRESS = AfterValidator(checked(parse_address))
_NETWORKS = Allowed('networks, as in "10.0.0.0/8 fd00::/8", "on" or "off"')
_PORTS = Allowed('ports and ranges, as in "80 443 8000-9000", or "all"')
_CONF = Allowed('lines such as "spark.ui.enabled=true", without spark.master and spark.sql.session.timeZone')
_PLACE = Allowed('HOST:PORT or unix:PATH, or "" for the default')

# The upper ends keep sums of several of them far inside of int64.
Bytes = Annotated[int, BeforeValidator(_bytes), Field(le=BYTES_LIMIT)]
Milliseconds = Annotated[int, BeforeValidator(_milliseconds), Field(le=DELAY_MS_LIMIT)]
Count = Annotated[int, BeforeValidator(_no_bool), Field(le=COUNT_LIMIT)]
Address = Annotated[str | None, BeforeValidator(_empty_is_none), _ADDRESS, Allowed('HOST:PORT, or "" for none')]
GatewayAddress = Annotated[str | None, BeforeValidator(_empty_is_none), AfterValidator(checked(socket_path)), _PLACE]
Optional = Annotated[str | None, BeforeValidator(_empty_is_none)]
SparkMaster = Annotated[
    str, AfterValidator(_spark_master), Allowed('"yarn", or what begins with "spark", "k8s" or "local"')
]
SparkConf = Annotated[str, BeforeValidator(_spark_conf), _CONF]
Issuers = Annotated[str | None, BeforeValidator(_issuers), Allowed(ISSUERS_ALLOWED)]
Origin = Annotated[
    str | None,
    BeforeValidator(_empty_is_none),
    AfterValidator(_origin),
    Allowed('https://HOST or https://HOST:PORT, http:// of this machine alone, or "" for none'),
]
Collector = Annotated[
    str | None,
    BeforeValidator(_empty_is_none),
    AfterValidator(_collector),
    Allowed('http:// or https:// with HOST:PORT, as "http://127.0.0.1:4318", or "" for none'),
]
Networks = Annotated[str, AfterValidator(checked(parse_networks)), _NETWORKS]
Ports = Annotated[str, AfterValidator(checked(parse_ports)), _PORTS]
Listeners = Annotated[str, AfterValidator(checked(parse_listeners)), Allowed('"flight link" or one, "" for none')]
LogLevel = Annotated[str, AfterValidator(checked(parse_log_levels)), Allowed(LEVEL_ALLOWED)]
Levels = Annotated[str, AfterValidator(checked(parse_levels)), Allowed('durations, as in "1s 5s 1m"')]
RocketMQName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}\z"), Allowed("1 to 100 of A-Z a-z 0-9 _ -")]
Takeover = Annotated[
    Literal["silent", "auto", "manual", "now"],
    BeforeValidator(lambda value: "auto" if value == "standby" else value),  # its name of before
]
STANDING_BY = frozenset(("auto", "manual"))
"""Values of :data:`Takeover` with which a broker stands by while another one owns the logs."""
Directory = Annotated[Path, AfterValidator(Path.expanduser)]
