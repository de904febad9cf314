"""A request of EventBridge Scheduler's API, read: whose it is, and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tarry.api.needs import Right
from tarry.fronts.http.scheduler.errors import invalid
from tarry.fronts.http.scheduler.names import check_name
from tarry.identity.principal import Principal

TAGS_MAX = 50


@dataclass(frozen=True, slots=True)
class SchedulerRequest:
    """On the event loop's thread."""

    label: str
    """Name in the path: a schedule, a group, or an ARN; empty: none."""
    fields: Mapping[str, Any]
    """Of the body."""
    query: Mapping[str, list[str]]
    principal: Principal
    region: str
    """The region that the client believes to be in; it is in ARNs."""
    peer: str

    def check(self, right: Right, topic: str) -> None:
        """Refuse who has not the right on a topic.

        Raises:
            ForbiddenError: it is not granted.
        """
        self.principal.check(right, topic, peer=self.peer)

    def sees(self, topic: str) -> bool:
        """Return whether the caller may know of what is in a topic."""
        return self.principal.rights.allow(Right.LOOK, topic)

    def asked(self, name: str) -> str | None:
        """Return a parameter of the query."""
        return self.query.get(name, [None])[0]

    def token(self) -> str | None:
        """Return the client's token in the body, by which a repeated request is known."""
        value = self.fields.get("ClientToken")
        if value is not None and (not isinstance(value, str) or not 1 <= len(value) <= 64):
            raise invalid(f"ClientToken is {value!r:.80}; allowed: 1 to 64 characters")
        return value

    def limit(self) -> int:
        """Return the most entries of a page.

        Raises:
            SchedulerError: it is not from 1 to 100.
        """
        text = self.asked("MaxResults") or "100"
        if not (text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= 100):
            raise invalid(f"MaxResults is {text!r:.40}; allowed: 1 to 100")
        return int(text)

    def prefix(self) -> str:
        """Return the beginning of the names that are asked for.

        Raises:
            SchedulerError: no name begins so.
        """
        text = self.asked("NamePrefix")
        return "" if text is None else check_name(text, "NamePrefix")

    def tags(self) -> dict[str, str]:
        """Return the tags in the body.

        Raises:
            SchedulerError: they are none.
        """
        given = self.fields.get("Tags") or []
        if not isinstance(given, list) or len(given) > TAGS_MAX or not all(map(_is_tag, given)):
            raise invalid(
                f"Tags is {given!r:.80}; allowed: up to {TAGS_MAX}, each with a Key of 1 to 128 and a Value of up to "
                "256 characters"
            )
        return {tag["Key"]: tag["Value"] for tag in given}


def _is_tag(tag: Any) -> bool:
    if not isinstance(tag, Mapping):
        return False
    key, value = tag.get("Key"), tag.get("Value")
    return isinstance(key, str) and 1 <= len(key) <= 128 and isinstance(value, str) and len(value) <= 256
