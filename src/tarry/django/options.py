"""``OPTIONS`` of a backend in ``TASKS``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tarry.base.errors import InvalidArgumentError
from tarry.django.compat import InvalidTaskBackend
from tarry.link.places import BrokerPlaces
from tarry.message.topics import TOPIC_ALLOWED, is_topic

ATTEMPTS_MAX = 100
"""So often a worker may be lost at one task, at most."""
PREFIX_CHARS_MAX = 60


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """The options, checked."""

    endpoint: str = "127.0.0.1:7611"
    """The broker, in any form that :class:`tarry.Client` takes."""
    token: str | None = None
    """Shows who the client is; None: what a client finds."""
    prefix: str = "django"
    """Topics of queues begin with it and a slash. Each project of a broker has its own."""
    attempts: int = 5
    """Most begins of one task: workers may end while they run it, or it may ask for another try."""
    lease: str | float | None = None
    """Time until others get the task of a machine that is gone; None: the broker's."""
    timeout_s: float = 5.0
    """Seconds that ``enqueue`` waits for the broker's answer."""

    @classmethod
    def of(cls, alias: str, given: Mapping[str, Any]) -> BackendOptions:
        """Check options as they were given.

        Raises:
            InvalidTaskBackend: one has a name or a value that it may not have.
        """
        names = [each.name for each in fields(cls)]
        where = f"TASKS[{alias!r}]['OPTIONS']"
        if unknown := sorted(set(given) - set(names)):
            raise InvalidTaskBackend(f"{where} has {unknown[0]!r}; allowed: {', '.join(names)}")
        options = cls(**given)
        for name, is_allowed, allowed in options._checks():
            if not is_allowed:
                raise InvalidTaskBackend(f"{where}[{name!r}] is {getattr(options, name)!r}; allowed: {allowed}")
        return options

    def _checks(self) -> list[tuple[str, bool, str]]:
        prefix = self.prefix
        return [
            ("endpoint", _is_endpoint(self.endpoint), "HOST:PORT, tls://HOST:PORT, unix:PATH, several with commas"),
            ("token", self.token is None or (isinstance(self.token, str) and bool(self.token)), "a text"),
            (
                "prefix",
                isinstance(prefix, str) and is_topic(prefix) and len(prefix) <= PREFIX_CHARS_MAX,
                f"{TOPIC_ALLOWED}, at most {PREFIX_CHARS_MAX}",
            ),
            ("attempts", _is_whole(self.attempts) and 1 <= self.attempts <= ATTEMPTS_MAX, f"1 to {ATTEMPTS_MAX}"),
            (
                "timeout_s",
                isinstance(self.timeout_s, int | float) and not isinstance(self.timeout_s, bool) and self.timeout_s > 0,
                "seconds, more than 0",
            ),
        ]


def _is_whole(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _is_endpoint(given: Any) -> bool:
    try:
        BrokerPlaces.of(given)
    except (InvalidArgumentError, AttributeError, TypeError):
        return False
    return True
