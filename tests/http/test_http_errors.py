"""The one table of errors as HTTP statuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tarry.base import errors
from tarry.base.errors import InvalidMessageError, NotFoundError, OverloadedError, TarryError
from tarry.fronts.http.errors import STATUS, HttpError, error_headers, error_json, status_of


def _all(cls: type[TarryError] = TarryError) -> Iterator[type[TarryError]]:
    yield cls
    for sub in cls.__subclasses__():
        yield from _all(sub)


def test_every_code_has_a_status() -> None:
    assert set(STATUS) == {c.code for c in _all() if c.__module__ == errors.__name__}
    assert all(400 <= status <= 599 for status in STATUS.values())


def test_what_a_retry_may_help_says_so() -> None:
    retryable = {c.code for c in _all() if c.__module__ == errors.__name__ and c.retryable}
    assert {STATUS[code] for code in retryable} == {429, 503, 507}
    assert error_headers(OverloadedError("full")) == {"retry-after": "1"}
    assert error_headers(NotFoundError("nothing")) == {}


def test_a_code_of_a_newer_class_has_the_status_of_its_base() -> None:
    class NewError(errors.MessageTooLargeError):
        code = "too_new"

    assert status_of(NewError("x")) == 413


def test_the_form_names_the_row_where_there_is_one() -> None:
    assert error_json(InvalidMessageError("bad")) == {"error": "invalid_message", "message": "bad"}
    assert error_json(InvalidMessageError("bad", row=3))["row"] == 3


def test_a_bug_keeps_its_text_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    answer = error_json(ValueError("secret"))
    assert answer["error"] == "internal"
    assert "secret" not in answer["message"]
    assert "secret" in caplog.text
    assert status_of(ValueError("secret")) == 500


def test_a_refusal_of_http_has_its_own_status_and_headers() -> None:
    error = HttpError(405, "method_not_allowed", "no", {"allow": "GET"})
    assert (status_of(error), error_headers(error)) == (405, {"allow": "GET"})
    assert error_json(error) == {"error": "method_not_allowed", "message": "no"}
