"""Options that several commands share, and the connection they talk through."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.delay import datetime_ms, due_from_delay, parse_duration_ms
from tarry.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tarry.client import Client

DEFAULT_ENDPOINT = "127.0.0.1:7611"

Endpoint = Annotated[
    str,
    typer.Option("--endpoint", "-e", metavar="HOST:PORT", envvar="TARRY_ENDPOINT", help="The broker's Flight front."),
]
Json = Annotated[bool, typer.Option("--json", help="Print data as JSON, one object a line.")]


def connect(endpoint: str) -> Client:
    """A client of the broker at ``endpoint``; close it, or use it in a ``with`` block."""
    from tarry.client import Client

    return Client(endpoint)


def when(delay: str | None, due: str | None) -> tuple[str, int]:
    """What ``--delay`` or ``--due`` mean: ``delay_ms``, which the broker's clock resolves, or ``due_ms``.

    Raises:
        InvalidArgumentError: both are given, or one means nothing.
    """
    if delay is not None and due is not None:
        raise InvalidArgumentError(f"--delay {delay} and --due {due} are both given; allowed: one of them")
    if due is not None:
        return "due_ms", _instant_ms(due)
    return "delay_ms", 0 if delay is None else duration_ms(delay, "--delay")


def duration_ms(text: str, option: str) -> int:
    """Milliseconds of "1h30m", or of a bare number, which is in seconds.

    Raises:
        InvalidArgumentError: for anything else; names the option.
    """
    try:
        if re.fullmatch(r"-?[0-9]+(\.[0-9]*)?", text.strip()):
            return due_from_delay(float(text), 0)
        return parse_duration_ms(text)
    except InvalidArgumentError as error:
        raise type(error)(f"{option}: {error}") from error


def _instant_ms(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,18}", text.strip()):
        return int(text)
    try:
        return datetime_ms(datetime.fromisoformat(text.strip()))
    except ValueError as error:
        allowed = "an instant with a time zone, as in 2026-12-01T06:00:00Z, or UTC milliseconds"
        raise InvalidArgumentError(f"--due {text!r} is not an instant; allowed: {allowed}") from error
