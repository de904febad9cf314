"""Taking back and moving what was scheduled, and what is pending under a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from annotated_types import MaxLen
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from tarry.api.needs import OnFound, OnTopic, Right
from tarry.api.operation import Action, Codec, Form, Int64, Natural, Operation
from tarry.api.outcome import Outcome, Rescheduled
from tarry.base.delay import Delay, DelayLevel
from tarry.base.errors import InvalidArgumentError
from tarry.message import handle as handles
from tarry.message.receipt import NO_SEQ, Receipt
from tarry.message.values import when

HANDLES_MAX = 65_536
"""Most handles, or keys, in one request on the wire."""
_DELAY_MS_MAX = 10**15
"""Beyond every limit that a broker can have, and within what a timedelta can be."""

Texts = Annotated[Sequence[str], Form(Annotated[list[str], MaxLen(HANDLES_MAX)], list, list)]


def check_texts(name: str, texts: Sequence[str]) -> None:
    """Check a list of texts.

    Raises:
        InvalidArgumentError: ``texts`` is no list of texts; names the first that is none.
    """
    if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
        raise InvalidArgumentError(f"{name} are of type {type(texts).__name__}; allowed: a list of texts")
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidArgumentError(f"{name}: number {place} is {text!r:.60}; allowed: texts")


def _outcomes(answer: Any) -> list[Outcome]:
    return [Outcome(word) for word in answer["outcomes"]]


OUTCOMES: Codec[list[Outcome]] = Codec(lambda outcomes: {"outcomes": list(outcomes)}, _outcomes, "outcomes")


class ReceiptJson(TypedDict):
    """A :class:`tarry.message.receipt.Receipt` as JSON."""

    id: str
    seq: int
    due_ms: int
    handle: str
    outcome: Literal["scheduled", "replaced", "kept", "duplicate"]


class RescheduledJson(TypedDict):
    """Outcome; where it is "done", also the receipt of the message at its new time."""

    outcome: Outcome
    receipt: ReceiptJson | None


class FoundJson(TypedDict):
    """The receipt of what is pending; null: nothing is."""

    receipt: ReceiptJson | None


def receipt_to_json(receipt: Receipt | None) -> dict[str, Any] | None:
    """Return a receipt as JSON; None for None."""
    if receipt is None:
        return None
    return {name: getattr(receipt, name) for name in ("id", "seq", "due_ms", "handle", "outcome")}


def receipt_from_json(values: dict[str, Any] | None) -> Receipt | None:
    """Return the receipt that :func:`receipt_to_json` wrote; None for None."""
    if values is None:
        return None
    if not values["handle"]:  # nothing was scheduled, for its condition did not hold
        return Receipt(values["id"], NO_SEQ, values["due_ms"], NO_SEQ, 1, b"", values["outcome"])
    parts = handles.decode(values["handle"])
    return Receipt(values["id"], parts.seq, parts.due_ms, parts.first_seq, parts.rows, parts.token, values["outcome"])


@dataclass(frozen=True, slots=True)
class Cancel(Operation[list[Outcome]]):
    """Cancel messages by their handles, durably; return an outcome for each, in order.

    A bad handle refuses all of them.

    To cancel a message of a series ends the series.

    Raises:
        InvalidArgumentError, ForgedHandleError: names the place of the handle that is none, or not this broker's;
            nothing was cancelled.
        OverloadedError, DiskFullError: not now; of more than 4,096, some were cancelled.
        UnavailableError: no answer. Some may have been cancelled; ask again: "cancelled" says that they were.
    """

    wire = Action("cancel", "cancel messages by handle", OUTCOMES)
    needs = OnFound(Right.PRODUCE)
    handles: Texts

    def __post_init__(self) -> None:
        check_texts("handles", self.handles)


@dataclass(frozen=True, slots=True)
class CancelKeys(Operation[list[Outcome]]):
    """Cancel what is pending under keys of a topic, durably; return an outcome for each, in order.

    The outcome is "unknown" for a key of which nothing is known.
    """

    wire = Action("cancel-keys", "cancel what is pending under keys of a topic", OUTCOMES)
    needs = OnTopic(Right.PRODUCE)
    topic: str
    keys: Texts

    def __post_init__(self) -> None:
        check_texts("keys", self.keys)


@dataclass(frozen=True, slots=True)
class Reschedule(Operation[Rescheduled]):
    """Move a message to another time.

    The message is that of ``handle``, or the one that is pending under ``key`` in ``topic``. It moves to ``due_ms``, or
    by ``delay_ms`` or ``delay_level`` from the broker's now. See :meth:`of` and :meth:`of_key`.
    """

    wire = Action(
        "reschedule",
        "move a message, by handle or by key, to another time",
        Codec(
            lambda moved: {"outcome": moved.outcome, "receipt": receipt_to_json(moved.receipt)},
            lambda answer: Rescheduled(Outcome(answer["outcome"]), receipt_from_json(answer["receipt"])),
            shape=RescheduledJson,
        ),
    )
    needs = OnFound(Right.PRODUCE)
    handle: str | None = None
    topic: str | None = None
    key: str | None = None
    due_ms: Int64 | None = None
    delay_ms: Natural | None = None
    delay_level: Int64 | None = None

    @classmethod
    def of(cls, handle: str, *, delay: Delay | None = None, due: datetime | int | None = None) -> Reschedule:
        """Move the message that ``handle`` names to another time, given as for ``schedule``.

        It keeps its content and id.

        Returns:
            The outcome; where it is "done", also the message's new receipt. The former handle names nothing any more.

        Raises:
            InvalidArgumentError, ForgedHandleError: no handle, or not one of this broker; or a time that is not
            allowed.
        """
        return cls(handle, None, None, *_time(delay, due))

    @classmethod
    def of_key(
        cls, topic: str, key: str, *, delay: Delay | None = None, due: datetime | int | None = None
    ) -> Reschedule:
        """Move what is pending under ``key`` in ``topic``, which keeps its key, to another time."""
        return cls(None, topic, key, *_time(delay, due))

    def __post_init__(self) -> None:
        times = {name: getattr(self, name) for name in ("due_ms", "delay_ms", "delay_level")}
        given = [name for name, value in times.items() if value is not None]
        if len(given) != 1:
            raise InvalidArgumentError(
                f"exactly one of {', '.join(times)} is needed; given: {', '.join(given) or 'none'}"
            )
        by_key = self.handle is None and self.topic is not None and self.key is not None
        if not by_key and (self.handle is None or self.topic is not None or self.key is not None):
            raise InvalidArgumentError(
                f"handle is {self.handle!r:.80}, topic {self.topic!r:.80}, key {self.key!r:.80}; "
                "allowed: a handle, or a topic and a key"
            )

    @property
    def time(self) -> dict[str, Any]:
        """The new time as arguments ``due`` or ``delay`` of ``schedule``."""
        if self.due_ms is not None:
            return {"due": self.due_ms}
        if self.delay_ms is not None:
            return {"delay": timedelta(milliseconds=min(self.delay_ms, _DELAY_MS_MAX))}
        assert self.delay_level is not None
        return {"delay": DelayLevel(self.delay_level)}


def _time(delay: Delay | None, due: datetime | int | None) -> tuple[int | None, int | None, int | None]:
    if delay is None and due is None:
        raise InvalidArgumentError("neither delay nor due is given; allowed: one of them")
    return when(delay, due)


@dataclass(frozen=True, slots=True)
class FindKey(Operation[Receipt | None]):
    """The receipt of what is pending under ``key`` in ``topic``; None: nothing is."""

    wire = Action(
        "find-key",
        "what is pending under a key",
        Codec(
            lambda receipt: {"receipt": receipt_to_json(receipt)},
            lambda answer: receipt_from_json(answer["receipt"]),
            shape=FoundJson,
        ),
    )
    needs = OnTopic(Right.PRODUCE)
    topic: str
    key: str
