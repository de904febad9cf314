"""The end of a message in a handler: exceptions, and their meaning to the group.

Tries, back-off and dead letters are the group's. A handler says no more than that one exception waits for longer, and
that another will never get better.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from tarry.api.retry import RetryPolicy, parse_retry
from tarry.base.delay import Delay
from tarry.base.errors import InvalidArgumentError
from tarry.client.delivery import duration_ms, reason_of

REASON_MAX = 1000
"""Characters of a reason that are sent; the broker keeps fewer."""


class Retry(Exception):  # noqa: N818 - what a handler says, not what went wrong
    """Give the message back: it comes again after ``after``, or the group's back-off. The try counts."""

    def __init__(self, reason: str = "", *, after: Delay | None = None) -> None:
        """``reason`` is shown in the message's history.

        Raises:
            InvalidArgumentError: ``after`` is no duration.
        """
        super().__init__(reason)
        self.after_ms = None if after is None else duration_ms("after", after, 0)


class Reject(Exception):  # noqa: N818 - as above
    """Make the message a dead letter at once: it will not get better. ``Reject("reason")``."""


class Release(Exception):  # noqa: N818 - as above
    """Give the message back as the same try, at once: this process has no room for it."""


class Ending(StrEnum):
    """End of a message in a handler."""

    HANDLED = "handled"
    RETRIED = "retried"
    REJECTED = "rejected"
    LOST = "lost"
    """Its lease ended while it was handled."""
    RELEASED = "released"
    """The worker stopped first, or has no room; no try is counted."""


@dataclass(frozen=True, slots=True)
class AfterFailure:
    """Meaning of a failure. ``delay_ms`` None: the group's back-off."""

    ending: Ending
    reason: str
    delay_ms: int | None = None


Rules = Mapping[type[BaseException], "str | type[Reject]"]
"""For a class of exceptions: a back-off, written as a group's ``retry``, or :class:`Reject`."""


def is_of_handler(error: BaseException) -> bool:
    """Return whether what a handler raised is about its message, and not about who runs it. In its task.

    ``sys.exit()``, somewhere below a handler, says that its work ends, and not that the process with the messages of
    all others does. And a handler that awaits what somebody has cancelled is not cancelled itself.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    return not isinstance(error, KeyboardInterrupt | GeneratorExit)


class RetryRules:
    """The rules of a handler."""

    def __init__(self, rules: Rules | None) -> None:
        """Check them.

        Raises:
            InvalidArgumentError: one is none.
        """
        self._rules: dict[type[BaseException], RetryPolicy | None] = {}
        for kind, rule in (rules or {}).items():
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise InvalidArgumentError(f"retry has {kind!r}; allowed: classes of exceptions")
            if rule is Reject:
                self._rules[kind] = None
            elif isinstance(rule, str):
                self._rules[kind] = parse_retry(rule)
            else:
                raise InvalidArgumentError(
                    f"retry of {kind.__name__} is {rule!r}; allowed: a back-off as 'fixed 10s', or tarry.Reject"
                )
        self._random = np.random.default_rng()

    def verdict(self, error: BaseException, attempt: int) -> AfterFailure:
        """Return what a failed try means; ``attempt``: its number, from 1 on."""
        if isinstance(error, Release):
            return AfterFailure(Ending.RELEASED, _cut(str(error)))
        found = next((kind for kind in type(error).__mro__ if kind in self._rules), None)
        if isinstance(error, Retry):
            return AfterFailure(Ending.RETRIED, _cut(str(error)), error.after_ms)
        if found is not None and (policy := self._rules[found]) is not None:
            return AfterFailure(Ending.RETRIED, _reason(error), self._delay_ms(policy, attempt))
        if found is not None or isinstance(error, Reject):
            return AfterFailure(Ending.REJECTED, _reason(error))
        return AfterFailure(Ending.RETRIED, _reason(error))

    def _delay_ms(self, policy: RetryPolicy, attempt: int) -> int:
        [delay_ms] = policy.delays_ms(np.array([attempt], np.int32), self._random)
        return int(delay_ms)


def settle(message: Any, verdict: AfterFailure) -> None:
    """Say so to the broker; ``message``: a :class:`tarry.client.Delivery`."""
    if verdict.ending is Ending.RELEASED:
        message.release()
    elif verdict.ending is Ending.REJECTED:
        message.reject(reason=verdict.reason)
    else:
        after_s = None if verdict.delay_ms is None else verdict.delay_ms / 1000
        message.nack(after_s, reason=verdict.reason)


def _reason(error: BaseException) -> str:
    text = reason_of(error)
    return _cut(text.removeprefix(f"{type(error).__name__}: ") if isinstance(error, Reject) else text)


def _cut(text: str) -> str:
    return text if len(text) <= REASON_MAX else text[: REASON_MAX - 1] + "…"
