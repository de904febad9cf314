"""The JSON requests of the Flight wire, checked strictly: types, unknown and missing fields; a refusal names it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tarry.errors import InvalidArgumentError
from tarry.fronts.flight.wire import Int64s, decode_json

# What the broker refuses (no group name, prefetch 0) it refuses itself; here a value must only be one that it can take.
_Int64 = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
_Natural = Annotated[int, Field(ge=0, lt=1 << 62)]


class _Command(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Consume(_Command):
    """DoExchange."""

    op: Literal["consume"] = "consume"
    topic: str
    group: str
    prefetch: _Natural = 1000
    lease_ms: _Natural | None = None


class Receive(_Command):
    """DoGet: a long poll."""

    op: Literal["receive"]
    topic: str
    group: str
    max_messages: _Natural = 1
    wait_ms: _Natural = 0
    lease_ms: _Natural | None = None


class Intake(_Command):
    """DoGet: a range of what was accepted."""

    op: Literal["intake"]
    start: _Natural
    end: _Natural


class Settling(_Command):
    """DoAction: ack."""

    topic: str
    group: str
    leases: list[_Int64]
    offsets: list[_Int64]

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

    delay_ms: _Natural | None = None


class Extend(Settling):
    """DoAction: extend."""

    lease_ms: _Natural


C = TypeVar("C", bound=_Command)


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


def ticket(raw: bytes) -> Receive | Intake:
    """The command of a DoGet."""
    said = decode_json(raw)
    op = said.get("op") if isinstance(said, dict) else None
    kinds: dict[Any, type[Receive] | type[Intake]] = {"receive": Receive, "intake": Intake}
    if not isinstance(op, str) or op not in kinds:
        raise InvalidArgumentError(f"op of a ticket is {op!r}; allowed: {', '.join(kinds)}")
    return parse(kinds[op], raw)


def _text(kind: type[_Command], error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    fields = ", ".join(kind.model_fields)
    if first["type"] == "missing":
        return f"{field} is missing; the fields are: {fields}"
    if first["type"] == "extra_forbidden":
        return f"{field} is not a field; allowed: {fields}"
    return f"{field} is {first['input']!r:.80}; {first['msg']}"
