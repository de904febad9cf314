"""The clock of a broker: the real one, or a test clock, which stands still until it is told to move.

A directory belongs to one of the two kinds: messages of a moved clock would fall due at wrong times on the real one,
and the other way round. The file ``clock.json`` marks those of a test clock, and keeps where it stands
(``docs/formats.md``).
"""

from __future__ import annotations

import logging
from pathlib import Path

from tarry.base.clock import Clock, StandingClock, SystemClock
from tarry.base.config import Config
from tarry.base.delay import due_from_delay, format_ms
from tarry.base.errors import InvalidArgumentError
from tarry.broker.directory import ID_FILE
from tarry.log.files import Files
from tarry.log.json_file import change_json, read_json, write_json

log = logging.getLogger(__name__)

FILE = "clock.json"
VERSION = 1
NOW = "now"
_REFUSED = {
    "log": "other machines may take such logs over, and their clocks go on",
    "store": "what reads that store goes by the real clock",
    "workers": "they go by the clock of their own process",
}
"""Settings that a test clock is not used with, and why."""


def clock_of(config: Config) -> Clock:
    """Return the clock that the settings ask for.

    A test clock goes on from where it stood, or from a later beginning that is set.

    Raises:
        InvalidArgumentError: the setting is no instant, or one before that; another setting does not go with it.
        CorruptError: the file is damaged.
    """
    if config.test_clock is None:
        return SystemClock()
    for name, reason in _REFUSED.items():
        if value := getattr(config, name, None):
            raise InvalidArgumentError(f"test_clock is set, and {name} is {value}: {reason}; allowed: one of them")
    begin_ms = None if config.test_clock == NOW else instant_ms(config.test_clock, "test_clock")
    kept_ms = read_standing_ms(config.data)
    if kept_ms is None:
        return StandingClock(SystemClock().now_ms() if begin_ms is None else begin_ms)
    if begin_ms is not None and begin_ms < kept_ms:
        raise InvalidArgumentError(
            f"test_clock is {config.test_clock}, and the clock of {config.data} stands at {format_ms(kept_ms)}; "
            "allowed: an instant that is not before that, now (to go on from there), or another directory"
        )
    return StandingClock(kept_ms if begin_ms is None else begin_ms)


def instant_ms(text: str, name: str) -> int:
    """Return the instant of ISO 8601, or of UTC milliseconds.

    Raises:
        InvalidArgumentError: it is none; ``name`` is what the text calls it.
    """
    if text.isdecimal() and len(text) <= 18:
        return int(text)
    try:
        if "T" not in text:
            raise InvalidArgumentError("a duration")
        return due_from_delay(text, 0)
    except InvalidArgumentError as error:
        allowed = "an instant with a time zone, as in 2027-01-01T00:00:00Z, or UTC milliseconds"
        raise InvalidArgumentError(f"{name} is {text!r:.60}; allowed: {allowed}") from error


def read_standing_ms(data: Path) -> int | None:
    """Return where the test clock of a directory stands; None: the directory has none.

    Raises:
        CorruptError: the file is damaged.
    """
    fields = read_json(data / FILE, [VERSION])
    return None if fields is None else int(fields["now_ms"])


def check_kind(files: Files, data: Path, clock: Clock) -> None:
    """Refuse a directory that is of the other kind of clock; mark a new one of a test clock.

    The directory is locked. A clock of another class is that of a test in this process, which knows what it does.

    Raises:
        InvalidArgumentError: it is of the other kind. CorruptError: the file is damaged.
    """
    kept_ms = read_standing_ms(data)
    if isinstance(clock, StandingClock):
        if kept_ms is None and (data / ID_FILE).exists():
            raise InvalidArgumentError(
                f"{data} was used with the real clock, and test_clock is set; allowed: a new directory"
            )
        write_json(files, data / FILE, VERSION, {"now_ms": clock.now_ms()})
        log.warning(
            "A TEST CLOCK: it stands at %s until it is told to move (tarry advance). Nothing falls due by itself",
            format_ms(clock.now_ms()),
        )
    elif isinstance(clock, SystemClock) and kept_ms is not None:
        raise InvalidArgumentError(
            f"{data} was used with a test clock, which stood at {format_ms(kept_ms)}; allowed: another directory, or "
            "--test-clock"
        )


def keep_standing(files: Files, data: Path, now_ms: int) -> None:
    """Keep, durably, where the clock stands from now on.

    Raises:
        DiskFullError, OverloadedError: not now.
    """
    change_json(files, data / FILE, VERSION, {"now_ms": now_ms})
