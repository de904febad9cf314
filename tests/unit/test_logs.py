"""Logs of processes: which level, which form, and what is not told again."""

from __future__ import annotations

import json
import logging

import pytest

from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError
from tarry.base.logs import SAME_S, JsonLines, Repetitions, log_to_stderr, parse_levels

DEBUG, INFO, WARNING = logging.DEBUG, logging.INFO, logging.WARNING


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("info", {"": INFO}),
        ("warning,tarry.log=debug", {"": WARNING, "tarry.log": DEBUG}),
        ("tarry.serve=debug", {"": INFO, "tarry.serve": DEBUG}),
        ("info, tarry.log = debug", None),
        ("loud", None),
        ("", None),
        ("info,debug", None),
        ("info,=debug", None),
        ("info,tarry log=debug", None),
        ("INFO", None),
    ],
)
def test_levels(text: str, levels: dict[str, int] | None) -> None:
    if levels is not None:
        assert parse_levels(text) == levels
        return
    with pytest.raises(InvalidArgumentError, match=r"log level .*; allowed: debug, info, warning, error; by module"):
        parse_levels(text)
    with pytest.raises(InvalidArgumentError, match="log_level"):
        Config(log_level=text)


@pytest.mark.parametrize(("verbose", "expected"), [(False, WARNING), (True, DEBUG)])
def test_the_environment_says_how_a_process_without_settings_logs(
    levels_as_before: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verbose: bool,
    expected: int,
) -> None:
    monkeypatch.setenv("TARRY_LOG_LEVEL", "warning,tarry.log=debug")
    monkeypatch.setenv("TARRY_LOG_FORMAT", "json")
    monkeypatch.setattr(logging.root, "handlers", [])
    log_to_stderr(verbose=verbose, process="worker 1")
    assert logging.root.level == expected
    logging.getLogger("tarry.log.objects").debug("%d rounds", 3)
    [line] = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert told.pop("time").endswith("+00:00")
    assert told == {"level": "debug", "logger": "tarry.log.objects", "process": "worker 1", "message": "3 rounds"}


def test_a_variable_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_LOG_FORMAT", "xml")
    with pytest.raises(InvalidArgumentError, match="TARRY_LOG_FORMAT is 'xml'; allowed: text, json"):
        log_to_stderr()


def test_a_traceback_is_a_field(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("tarry.test").exception("it failed")
    [line] = JsonLines().format(caplog.records[0]).splitlines()
    told = json.loads(line)
    assert told["message"] == "it failed"
    assert told["traceback"].endswith("ValueError: two\nlines")


class Teller:
    """A logger behind the filter, and what of it is told."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._filter = Repetitions(lambda: self.now_s, known_max=3)

    def tell(self, text: str, *values: object, level: int = WARNING, error: bool = False) -> str | None:
        failed = (ValueError, ValueError(), None) if error else None
        record = logging.LogRecord("tarry.test", level, "", 0, text, values, failed)
        return record.getMessage() if self._filter.filter(record) else None


def test_a_warning_that_says_the_same_is_told_once_a_minute() -> None:
    teller = Teller()
    assert teller.tell("the store %s is away", "s3://b") == "the store s3://b is away"
    for _ in range(7):
        teller.now_s += 5
        assert teller.tell("the store %s is away", "s3://b") is None
    assert teller.tell("the store %s is away", "s3://c") == "the store s3://c is away"
    teller.now_s = SAME_S
    assert teller.tell("the store %s is away", "s3://b") == "the store s3://b is away (and 7 times more in 60 s)"
    teller.now_s *= 3
    assert teller.tell("the store %s is away", "s3://b") == "the store s3://b is away"


def test_a_text_with_a_per_cent_sign_stays_as_it_is() -> None:
    teller = Teller()
    for _ in range(2):
        teller.tell("the disk is %d %% full: %s", 97, "/100%d")
    teller.now_s = SAME_S
    assert teller.tell("the disk is %d %% full: %s", 97, "/100%d") == (
        "the disk is 97 % full: /100%d (and 1 times more in 60 s)"
    )


def test_what_is_no_warning_or_has_a_traceback_is_always_told() -> None:
    teller = Teller()
    for _ in range(3):
        assert teller.tell("it begins", level=INFO) == "it begins"
        assert teller.tell("it failed", error=True) == "it failed"


def test_what_was_told_long_ago_is_forgotten_first() -> None:
    teller = Teller()
    for text in ("a", "b", "a", "c", "d"):
        teller.tell(text)
    assert teller.tell("a") is None
    assert teller.tell("b") == "b"
