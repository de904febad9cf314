"""Back-off policies: the delay of a message after a failed try, written as a short text.

The text is what a user gives, what is stored and what is shown:

    fixed 1s                                      always the same
    exponential 1s max 1h                         doubles up to the max; ``factor 1.5`` for another factor than 2
    list 10s 30s 1m 5m                            one after the other, then the last for ever
    rocketmq                                      the list of RocketMQ's 16 steps, from 10s to 2h

Each may end in ``jitter 0.2``: a uniformly random part of up to 20 % is taken off, so that what failed together is not
tried again together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tarry.base.delay import DELAY_MS_MAX, ROCKETMQ_LEVELS, parse_duration_ms
from tarry.base.errors import InvalidArgumentError
from tarry.base.printable import shown

STEPS_MAX = 100
FACTOR_MAX = 1000.0
FORMS = (
    "'fixed 1s', 'exponential 1s max 1h [factor 2]', 'list 10s 30s 1m', 'rocketmq', each with an optional 'jitter 0.2'"
)
ROCKETMQ_RETRIES = " ".join(ROCKETMQ_LEVELS.split()[2:])
"""RocketMQ's consumer retries: its delay levels from the third on."""

_TEXT_MAX = 4000
# Few digits, so that a number prints as it was written.
_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4})?")
_UNITS = (("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays in milliseconds.

    ``str`` returns the canonical text; :func:`parse_retry` reads it back as an equal policy.
    """

    form: str
    """fixed, exponential or list"""
    steps_ms: tuple[int, ...]
    """Delays of a list; otherwise the first delay alone."""
    max_ms: int
    factor: float = 1.0
    jitter: float = 0.0

    def delays_ms(self, attempts: npt.NDArray[np.int32], random: np.random.Generator) -> npt.NDArray[np.int64]:
        """Return each row's wait after its ``attempts``-th try (1 is the first) has failed."""
        tried = np.maximum(attempts, 1).astype(np.int64) - 1
        if self.form == "list":
            steps = np.array(self.steps_ms, np.int64)
            delays = steps[np.minimum(tried, len(steps) - 1)]
        else:
            with np.errstate(over="ignore"):  # to infinity, which is cut to the max
                raw = self.steps_ms[0] * np.power(self.factor, tried)
            delays = np.rint(np.minimum(raw, self.max_ms)).astype(np.int64)
        if self.jitter:
            delays = np.rint(delays * (1 - self.jitter * random.random(len(delays)))).astype(np.int64)
        return delays

    def __str__(self) -> str:
        words = [self.form, *(_duration(step) for step in self.steps_ms)]
        if self.form == "exponential":
            words += ["max", _duration(self.max_ms)]
            if self.factor != 2:
                words += ["factor", _number(self.factor)]
        if self.jitter:
            words += ["jitter", _number(self.jitter)]
        return " ".join(words)


def parse_retry(text: str) -> RetryPolicy:
    """Return the policy that ``text`` describes; the forms are in the module's docstring.

    Raises:
        InvalidArgumentError: it describes none; names what is wrong and what is allowed.
    """
    if not isinstance(text, str) or len(text) > _TEXT_MAX or not text.strip():
        raise InvalidArgumentError(f"retry policy {shown(text)}; allowed: {FORMS}, in up to {_TEXT_MAX} characters")
    form, *words = text.split()
    if form == "rocketmq":
        form, words = "list", ROCKETMQ_RETRIES.split() + words
    if form not in _OPTIONS:
        raise InvalidArgumentError(f"retry policy {shown(text)}; allowed: {FORMS}")
    try:
        return _parse(form, words)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"retry policy {shown(text)}: {error}; allowed: {FORMS}") from None


_OPTIONS = {"fixed": ("jitter",), "exponential": ("max", "factor", "jitter"), "list": ("jitter",)}


def _parse(form: str, words: list[str]) -> RetryPolicy:
    count = next((at for at, word in enumerate(words) if word in _OPTIONS[form]), len(words))
    steps = tuple(_delay(word) for word in words[:count])
    if not steps or len(steps) > (STEPS_MAX if form == "list" else 1):
        many = f"1 to {STEPS_MAX} delays are" if form == "list" else "one delay is"
        raise InvalidArgumentError(f"{many} needed, {len(steps)} are given")
    options = _options(form, words[count:])
    jitter = _fraction("jitter", options.get("jitter", "0"), 0, 1)
    if form != "exponential":
        return RetryPolicy(form, steps, max(steps), jitter=jitter)
    if "max" not in options:
        raise InvalidArgumentError("a max is needed")
    first, most = steps[0], _delay(options["max"])
    if not 1 <= first <= most:
        raise InvalidArgumentError(
            f"the first delay is {_duration(first)}; 1ms to the max, {_duration(most)}, is needed"
        )
    return RetryPolicy(form, steps, most, _fraction("factor", options.get("factor", "2"), 1, FACTOR_MAX), jitter)


def _options(form: str, words: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in zip(words[::2], [*words[1::2], ""], strict=False):
        if name not in _OPTIONS[form] or name in options:
            again = " a second time" if name in options else ""
            raise InvalidArgumentError(f"{shown(name)}{again} where {', '.join(_OPTIONS[form])} may be")
        options[name] = value
    return options


def _delay(word: str) -> int:
    delay = parse_duration_ms(word)
    if delay > DELAY_MS_MAX:
        raise InvalidArgumentError(f"{shown(word)} is more than {_duration(DELAY_MS_MAX)}")
    return delay


def _fraction(name: str, word: str, low: float, high: float) -> float:
    if not _NUMBER.fullmatch(word) or not low <= float(word) <= high:
        raise InvalidArgumentError(
            f"{name} is {shown(word)}; a number from {low} to {_number(high)} of up to 4 decimals is needed"
        )
    return float(word)


def _duration(ms: int) -> str:
    parts = []
    for unit, size in _UNITS:
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")
