"""Waiting for what another thread tells when it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from tarry.base.errors import TarryError

A = TypeVar("A")
T = TypeVar("T")


def answer_of(begin: Callable[[Callable[[A | TarryError], None]], object]) -> A:
    """Begin something that tells its answer, and wait for it.

    Raises:
        TarryError: what it was told instead.
    """
    answered = threading.Event()
    answers: list[A | TarryError] = []

    def done(answer: A | TarryError) -> None:
        answers.append(answer)
        answered.set()

    begin(done)
    answered.wait()
    answer = answers[0]
    if isinstance(answer, TarryError):
        raise answer
    return answer


def wait_for(begin: Callable[[Callable[[TarryError | None], None]], T]) -> T:
    """Begin something that tells its end, and wait for that.

    Raises:
        TarryError: what it was told.
    """
    answered = threading.Event()
    errors: list[TarryError | None] = []

    def done(error: TarryError | None) -> None:
        errors.append(error)
        answered.set()

    result = begin(done)
    answered.wait()
    if errors[0] is not None:
        raise errors[0]
    return result
