"""Messages between the relay's driver and its tasks, as JSON, which can say nothing but these.

Each is an object with one entry, from the message's kind to its content; ``null`` is an order to end at once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np

from tarry.api.jobs import StagedFile
from tarry.api.operation import known
from tarry.api.wire import decode_json
from tarry.base.errors import InvalidArgumentError, TarryError, from_wire
from tarry.base.histogram import Histogram
from tarry_relay.files import Reached
from tarry_relay.positions import OffsetRange
from tarry_relay.schedule import SchedulePlan, ShardResult


class TaskQuery(StrEnum):
    """The query that a task works for."""

    SCHEDULE = "schedule"
    DELIVER = "deliver"


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a task, which identifies it."""

    query: TaskQuery
    shard: int


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """A shard's durable progress in delivery, and its results since the last report."""

    committed: Reached
    results: tuple[ShardResult, ...] = ()


@dataclass(frozen=True, slots=True)
class StopOrder:
    """The driver's order to a delivering task: come to a place at ``settle_ms``, and end."""

    settle_ms: int


Failure = TarryError | OSError
Message: TypeAlias = Hello | SchedulePlan | ShardResult | ShardProgress | StopOrder | Failure | None


def encode(message: Message) -> bytes:
    """Return a message as bytes."""
    plain = None
    if message is not None:
        kind = next(name for name, each in _FORMS.items() if isinstance(message, each.type))
        plain = {kind: _FORMS[kind].encode(message)}
    return json.dumps(plain, separators=(",", ":"), default=_number).encode()


def decode(raw: bytes) -> Message:
    """Return the message that :func:`encode` made bytes of.

    Raises:
        InvalidArgumentError: it is none.
    """
    plain = decode_json(raw)
    if plain is None:
        return None
    try:
        [(kind, content)] = plain.items()
        message: Message = _FORMS[kind].decode(content)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{raw[:40]!r} ({len(raw)} bytes) is no message of a relay; allowed: {', '.join(_FORMS)}"
        ) from error
    return message


@dataclass(frozen=True, slots=True)
class _Form:
    """A kind of message: its type, and the conversions in both directions."""

    type: type
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def _result(of: ShardResult) -> dict[str, Any]:
    files = [asdict(file) for file in of.files]
    return {"shard": of.shard, "counts": of.counts, "files": files, "lateness_ms": of.lateness_ms.to_json()}


def _as_result(plain: dict[str, Any]) -> ShardResult:
    files = [known(StagedFile, file) for file in plain["files"]]
    return ShardResult(plain["shard"], Counter(plain["counts"]), files, Histogram.from_json(plain["lateness_ms"]))


def _as_plan(plain: dict[str, Any]) -> SchedulePlan:
    return SchedulePlan(plain["shard"], plain["cut_ms"], tuple(known(OffsetRange, each) for each in plain["ranges"]))


def _number(value: Any) -> int | float:
    """Return a number of NumPy's as one of Python's, which is what JSON has."""
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.floating):
        return float(value)
    raise TypeError(f"{value!r:.80} is no part of a message")


_FORMS: dict[str, _Form] = {
    "hello": _Form(Hello, asdict, lambda plain: Hello(TaskQuery(plain["query"]), plain["shard"])),
    "plan": _Form(SchedulePlan, asdict, _as_plan),
    "result": _Form(ShardResult, _result, _as_result),
    "progress": _Form(
        ShardProgress,
        lambda of: {"committed": asdict(of.committed), "results": [_result(each) for each in of.results]},
        lambda plain: ShardProgress(known(Reached, plain["committed"]), tuple(map(_as_result, plain["results"]))),
    ),
    "stop": _Form(StopOrder, asdict, lambda plain: known(StopOrder, plain)),
    "error": _Form(TarryError, TarryError.to_wire, lambda plain: from_wire(plain["code"], plain["message"])),
    "system_error": _Form(OSError, lambda error: {"message": str(error)}, lambda plain: OSError(plain["message"])),
}
