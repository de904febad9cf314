"""A request of SQS's API, read: its operation, its parameters, and who asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tarry.fronts.http.exchange import HttpRequest
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.sqs.errors import invalid, missing

Parameters: TypeAlias = Mapping[str, Any]
"""Parameters of an operation as in the JSON protocol."""


@dataclass(slots=True)
class SqsRequest:
    """On the event loop's thread."""

    http: HttpRequest
    parameters: Parameters
    desk: HttpServices
    """The broker as the caller sees it."""
    region: str
    """The region that the client believes to be in; it is in ARNs."""
    base_url: str
    """The beginning of queues' URLs, by which the client gets here again."""

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """Return a parameter that is a whole number.

        Raises:
            SqsError: it is none, or not from ``low`` to ``high``.
        """
        return whole_of(self.parameters, name, default, low, high)

    def entries(self) -> list[Parameters]:
        """Return the entries of a batch, as they came.

        Raises:
            SqsError: there is no list of objects.
        """
        given = self.parameters.get("Entries")
        if given is None:
            raise missing("Entries")
        if not isinstance(given, list) or not all(isinstance(entry, Mapping) for entry in given):
            raise invalid("Entries must be a list of structures.")
        return given


Carry: TypeAlias = Callable[[SqsRequest], Awaitable[dict[str, Any] | None]]
"""Carries an operation out, and returns its answer's fields."""


def whole_of(parameters: Parameters, name: str, default: int, low: int, high: int) -> int:
    """Return a parameter that is a whole number; a text of digits is one, too, as older SDKs send it.

    Raises:
        SqsError: it is none, or not from ``low`` to ``high``.
    """
    value = parameters.get(name)
    if value is None:
        return default
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and value.isascii() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise invalid(f"Value {value!s:.60} for parameter {name} is invalid. Reason: {_allowed(name, low, high)}.")
    return value


def _allowed(name: str, low: int, high: int) -> str:
    """Return what is allowed of a number in the words of AWS, which differ by the parameter."""
    if name == "DelaySeconds":
        return f"DelaySeconds must be >= {low} and <= {high}"
    if name.startswith("Max"):
        return f"Must be between {low} and {high}, if provided"
    return f"Must be >= {low} and <= {high}, if provided"


def text_of(parameters: Parameters, name: str) -> str | None:
    """Return a parameter that is a text; None: it is not there, or empty.

    Raises:
        SqsError: it is none.
    """
    value = parameters.get(name)
    if value is not None and not isinstance(value, str):
        raise invalid(f"{name} must be a string.")
    return value or None


def texts_of(parameters: Parameters, *names: str) -> list[str]:
    """Return a parameter that is a list of texts, by the first of its names that is there.

    Raises:
        SqsError: it is none.
    """
    for name in names:
        value = parameters.get(name)
        if value is not None:
            if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
                raise invalid(f"{name} must be a list of strings.")
            return value
    return []
