"""Interpretation of the answer to a push: a 2xx, and nothing else, is the acknowledgement."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

from tarry.outbound.connection import HttpAnswer

RETRY_AFTER_MS_MAX = 86_400_000
"""Maximum delay: a receiver that asks for more than a day is asked again after a day."""


class PushOutcome(StrEnum):
    PUSHED = "pushed"
    FAILED = "failed"
    THROTTLED = "throttled"
    """The receiver takes messages again from a moment on that it has named."""
    GONE = "gone"
    """The receiver wants nothing more."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a push.

    ``delay_ms``: time until the message comes again; None: as its group says.
    """

    outcome: PushOutcome
    error: str | None = None
    delay_ms: int | None = None


PUSHED = Verdict(PushOutcome.PUSHED)


def verdict_of(answer: HttpAnswer, now_ms: int) -> Verdict:
    """Return the verdict on an answer."""
    status = answer.status
    if status is None:
        return Verdict(PushOutcome.FAILED, answer.error or "no answer")
    if 200 <= status < 300:
        return PUSHED
    if status == 410:
        return Verdict(PushOutcome.GONE, "410: the receiver wants nothing more")
    if status in (429, 503) and (delay_ms := retry_after_ms(answer.retry_after, now_ms)) is not None:
        return Verdict(PushOutcome.THROTTLED, f"{status}: again in {delay_ms / 1000:g} s, says the receiver", delay_ms)
    if 300 <= status < 400:
        return Verdict(PushOutcome.FAILED, f"{status}: redirects are not followed; set the URL to where it points")
    return Verdict(PushOutcome.FAILED, f"the answer was {status}")


def retry_after_ms(text: str | None, now_ms: int) -> int | None:
    """Return the milliseconds of a ``Retry-After`` header; None if it is invalid.

    It has seconds, or a date (RFC 9110, section 10.2.3).
    """
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdecimal() and len(text) < 12:
        wait_ms = int(text) * 1000
    else:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        wait_ms = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000) - now_ms
    return min(max(wait_ms, 0), RETRY_AFTER_MS_MAX)
