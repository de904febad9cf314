"""The JSON requests of the Flight wire, checked strictly: types, unknown and missing fields; a refusal names it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tarry.api.wire import decode_json
from tarry.base.errors import InvalidArgumentError
from tarry.base.types import Int64s

# What the broker refuses (no group name, prefetch 0) it refuses itself; here a value must only be one that it can take.
Int64 = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
Natural = Annotated[int, Field(ge=0, lt=1 << 62)]
Start = Literal["earliest", "latest"]

LETTERS_MAX = 10_000
"""Most dead letters in one answer."""


class Command(BaseModel):
    """What is common to all of them."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Consume(Command):
    """DoExchange."""

    op: Literal["consume"] = "consume"
    topic: str
    group: str
    prefetch: Natural = 1000
    lease_ms: Natural | None = None
    start: Start | None = None
    broadcast: str | None = None


class Receive(Command):
    """DoGet: a long poll."""

    op: Literal["receive"]
    topic: str
    group: str
    max_messages: Natural = 1
    wait_ms: Natural = 0
    lease_ms: Natural | None = None
    start: Start | None = None
    broadcast: str | None = None


class Intake(Command):
    """DoGet: a range of what was accepted."""

    op: Literal["intake"]
    start: Natural
    end: Natural


class DeadLetters(Command):
    """DoGet: a page of dead letters."""

    op: Literal["dead-letters"]
    topic: str
    group: str
    limit: Annotated[int, Field(ge=1, le=LETTERS_MAX)] = 100
    after: Int64 | None = None


class ListPending(Command):
    """DoGet: a page of what is pending."""

    op: Literal["list-pending"]
    topic: str | None = None
    after_ms: Int64 | None = None
    until_ms: Int64 | None = None
    key: str | None = None
    id: str | None = None
    tag: str | None = None
    limit: Natural = 100
    cursor: str | None = None
    bodies: bool = True


class Peek(Command):
    """DoGet: what is ready, not taken."""

    op: Literal["peek"]
    topic: str
    group: str | None = None
    limit: Natural = 10


class Queue(Command):
    """DoGet: a range of a topic's queue."""

    op: Literal["queue"]
    topic: str
    start: Natural
    end: Natural


class Cancelled(Command):
    """DoGet: what the cancellations of a range of the intake name."""

    op: Literal["cancelled"]
    start: Natural
    end: Natural


class Settling(Command):
    """DoAction: ack."""

    topic: str
    group: str
    leases: list[Int64]
    offsets: list[Int64]

    def pairs(self) -> tuple[Int64s, Int64s]:
        """Leases and offsets as arrays.

        Raises:
            InvalidArgumentError: they are not of one length.
        """
        if len(self.leases) != len(self.offsets):
            raise InvalidArgumentError(
                f"{len(self.leases)} leases and {len(self.offsets)} offsets; allowed: the same number of both"
            )
        return np.array(self.leases, np.int64), np.array(self.offsets, np.int64)


class Nack(Settling):
    """DoAction: nack."""

    delay_ms: Natural | None = None


class Extend(Settling):
    """DoAction: extend."""

    lease_ms: Natural


C = TypeVar("C", bound=Command)


def parse(kind: type[C], raw: bytes) -> C:
    """The command that ``raw`` says.

    Raises:
        InvalidArgumentError: names the field and what is allowed.
    """
    said = decode_json(raw)
    if not isinstance(said, dict):
        raise InvalidArgumentError(f"a command is {type(said).__name__}: {said!r:.80}; allowed: a JSON object")
    try:
        return kind.model_validate(said)
    except ValidationError as error:
        raise InvalidArgumentError(_text(kind, error)) from None


Ticket = Receive | Intake | DeadLetters | ListPending | Peek | Queue | Cancelled
_TICKETS: dict[Any, type[Ticket]] = {
    "receive": Receive,
    "intake": Intake,
    "dead-letters": DeadLetters,
    "list-pending": ListPending,
    "peek": Peek,
    "queue": Queue,
    "cancelled": Cancelled,
}


def ticket(raw: bytes) -> Ticket:
    """The command of a DoGet."""
    said = decode_json(raw)
    op = said.get("op") if isinstance(said, dict) else None
    if not isinstance(op, str) or op not in _TICKETS:
        raise InvalidArgumentError(f"op of a ticket is {op!r}; allowed: {', '.join(_TICKETS)}")
    return parse(_TICKETS[op], raw)


def _text(kind: type[Command], error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    # Of a field of several types, the name is followed by that of a type.
    named = [str(part) for place, part in enumerate(first["loc"]) if not place or isinstance(part, int)]
    field = ".".join(named)
    fields = ", ".join(kind.model_fields)
    if first["type"] == "missing":
        return f"{field} is missing; the fields are: {fields}"
    if first["type"] == "extra_forbidden":
        return f"{field} is not a field; allowed: {fields}"
    return f"{field} is {first['input']!r:.80}; {first['msg']}"
