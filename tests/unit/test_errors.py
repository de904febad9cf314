"""The error tree: stable codes, and the way over the wire and back."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base import errors
from tarry.base.errors import InvalidMessageError, TarryError, from_wire


def _all(cls: type[TarryError] = TarryError) -> Iterator[type[TarryError]]:
    if cls.__module__.startswith("tarry."):
        yield cls
    for sub in cls.__subclasses__():
        yield from _all(sub)


def test_the_codes_are_those_that_programs_rely_on() -> None:
    ours = {c.code: c.retryable for c in _all() if c.__module__ == errors.__name__}
    assert ours == {
        "internal": False,
        "invalid_argument": False,
        "invalid_message": False,
        "delay_too_long": False,
        "message_too_large": False,
        "key_exists": False,
        "forged_handle": False,
        "not_found": False,
        "unauthenticated": False,
        "forbidden": False,
        "ownership_lost": True,
        "trimmed": False,
        "stale_lease": False,
        "stale_commit": False,
        "overloaded": True,
        "quota_exceeded": True,
        "filter_paused": True,
        "disk_full": True,
        "unavailable": True,
        "closed": True,
        "locked": False,
        "corrupt": False,
        "fatal": False,
        "illegal_transition": False,
        "native_only": False,
    }


def test_no_two_errors_share_a_code() -> None:
    codes = [c.code for c in _all()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("cls", list(_all()), ids=lambda c: c.code)
def test_each_survives_the_wire(cls: type[TarryError]) -> None:
    again = from_wire(**json.loads(json.dumps(cls("what was wrong, 5; allowed: 6").to_wire())))
    assert type(again) is cls
    assert str(again) == "what was wrong, 5; allowed: 6"
    assert again.retryable is cls.retryable


@pytest.mark.parametrize("row", [None, 0, 123])
def test_the_row_survives_the_wire(row: int | None) -> None:
    again = from_wire(**InvalidMessageError("body is null", row=row).to_wire())
    assert isinstance(again, InvalidMessageError)
    assert again.row == row
    assert str(again) == ("body is null" if row is None else f"row {row}: body is null")


@given(st.one_of(st.sampled_from([c.code for c in _all()]), st.text()), st.text() | st.text().map(lambda t: "row " + t))
def test_whatever_comes_over_the_wire_is_an_error_with_that_text(code: str, message: str) -> None:
    error = from_wire(code, message)
    assert isinstance(error, TarryError)
    assert str(error) == message


def test_an_unknown_code_is_a_plain_error() -> None:
    assert type(from_wire("of_a_later_version", "text")) is TarryError
