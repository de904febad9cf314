"""Events of a history: what clients asked and were answered, and what they were handed, by one clock.

Times are milliseconds since the Unix epoch by the clock of one machine. A call's answer is the broker's word; "?"
stands where there was none, so that the call may have happened, at any time after it began, or not. Calls that
certainly did not happen are left out. A *placing* is a message at one due time: its name, which is its body, and the
due time. No message is placed twice at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

UNKNOWN = "?"

Placing = tuple[str, int]
"""Name of a message, and due time in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Part that all calls have."""

    begin_ms: float
    end_ms: float
    answer: str = UNKNOWN
    life: int = 0
    """The broker's life that was asked; counts from 0."""
    error: str = ""
    """Code of the error that came in the place of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Call):
    """A message is scheduled; with the same ``name`` again, by its id.

    Answers: scheduled, replaced, kept, duplicate, key_exists.
    """

    name: str
    due_ms: int
    key: str | None = None
    on_key: str = "replace"
    order_key: str | None = None
    seq: int | None = None
    """The broker's number for it, where it was answered."""
    every_ms: int = 0
    times: int = 1
    """A series has so many occurrences."""

    @property
    def placing(self) -> Placing:
        return self.name, self.due_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel(Call):
    """A message is cancelled: by its handle, ``target``, or by its key.

    Answers: done, delivered, cancelled, unknown.
    """

    target: Placing | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(Cancel):
    """A message is moved to ``due_ms``. Answers as of :class:`Cancel`."""

    due_ms: int
    seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message was handed to a consumer."""

    at_ms: float
    name: str
    due_ms: int
    seq: int
    life: int = 0

    @property
    def placing(self) -> Placing:
        return self.name, self.due_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(Call):
    """A message was acknowledged. Answer: done."""

    name: str
    due_ms: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A broker became the owner, at some time between these."""

    begin_ms: float
    end_ms: float
    life: int
    why: str = ""
    """The fault that it followed."""


Event = Send | Cancel | Move | Delivery | Ack | Claim
_TYPES: dict[str, type[Event]] = {each.__name__: each for each in (Send, Cancel, Move, Delivery, Ack, Claim)}


def start_of(event: Event) -> float:
    return event.at_ms if isinstance(event, Delivery) else event.begin_ms


def save(events: Iterable[Event], path: Path, *, first: bool = True) -> None:
    """Write events to a file, one a line; if they are not the ``first``, behind those that it has."""
    with path.open("w" if first else "a") as file:
        for event in events:
            file.write(json.dumps({"type": type(event).__name__, **asdict(event)}) + "\n")


def load(path: Path) -> list[Event]:
    """Read what :func:`save` wrote."""
    events = []
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        kind = _TYPES[fields.pop("type")]
        if fields.get("target") is not None:
            fields["target"] = tuple(fields["target"])
        events.append(kind(**fields))
    return events


def story(events: Sequence[Event], claims: Sequence[Claim]) -> str:
    """Return events as text, and the claims between them, with times in seconds from the first one."""
    told = sorted(events, key=start_of)
    first, last = start_of(told[0]), max(getattr(each, "end_ms", start_of(each)) for each in told)
    around = [claim for claim in claims if claim.end_ms >= first and claim.begin_ms <= last]
    return "\n".join(_line(event, first) for event in sorted([*told, *around], key=start_of))


def _line(event: Event, first: float) -> str:
    fields = {name: value for name, value in asdict(event).items() if value not in (None, "", 0)}
    start = (start_of(event) - first) / 1000
    if "due_ms" in fields:
        fields["due"] = f"{(fields.pop('due_ms') - first) / 1000:.3f}"
    if fields.get("target"):
        name, due_ms = fields["target"]
        fields["target"] = f"{name} at {(due_ms - first) / 1000:.3f}"
    until = f"…{(fields['end_ms'] - first) / 1000:.3f}" if "end_ms" in fields else ""
    rest = " ".join(f"{name}={value}" for name, value in fields.items() if name not in ("begin_ms", "end_ms", "at_ms"))
    return f"  {start:9.3f}{until:10} {type(event).__name__:8} {rest}"
