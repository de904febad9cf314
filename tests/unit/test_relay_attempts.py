"""When the relay tries again, after which pause, and when it gives up."""

from __future__ import annotations

import pytest

from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.store import StaleCommitError
from tarry_relay import attempts as module
from tarry_relay.attempts import RIVALS_MAX, Attempts
from tarry_relay.clients import FencedError


def test_it_tries_for_ever_with_pauses_that_grow_to_a_minute() -> None:
    attempts = Attempts()
    assert [attempts.fail(error) for error in [None, UnavailableError("away")] * 4] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_what_does_not_fit_is_not_tried_again() -> None:
    with pytest.raises(InvalidArgumentError, match="no such topic"):
        Attempts().fail(InvalidArgumentError("no such topic"))


def test_takeovers_in_a_row_prove_another_relay() -> None:
    attempts = Attempts()
    for error in [FencedError("fenced"), StaleCommitError("stale")]:
        attempts.fail(error)
    attempts.fail(UnavailableError("away"))
    assert RIVALS_MAX == 3
    with pytest.raises(FencedError, match="again"):
        attempts.fail(FencedError("again"))


def test_a_healthy_attempt_between_them_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEALTHY_S", 0.0)
    attempts = Attempts()
    for _ in range(2 * RIVALS_MAX):
        attempts.begin()
        assert attempts.fail(FencedError("fenced")) == 1
