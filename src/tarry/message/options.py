"""One table of a message's options: all but its topic, body and due time. Imports nothing slow.

A new option is a row of :data:`OPTIONS`, its name in :class:`MessageOptions` (for editors and type checkers), and a
field of :class:`tarry.message.message.Message`. The arguments of ``schedule``, the columns of batches, REST's fields
and headers, ``tarry send``, the console's form, Spark's columns and docs/message-options.md are made of the table, or
held against it by a test. An option that is stored as a reserved property changes no format on disk or on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from tarry.repeat import Repeat

    RepeatLike = Repeat | Mapping[str, Any] | str

OnKeyWay = Literal["replace", "keep", "refuse", "if_pending"]
"""Ways to schedule a message whose key is pending in its topic already."""
LateWay = Literal["deliver", "drop", "dead"]
"""Ways to treat a message that has expired before it was delivered."""
INT32_MAX = (1 << 31) - 1
SEQ_MAX = (1 << 62) - 1
"""No seq comes near it."""
ORDER_KEY, LATE = "tarry.order", "tarry.late"
"""Reserved properties in which options are stored."""


class OptionKind(Enum):
    """Type of an option's value."""

    TEXT = "a text"
    WHOLE = "a whole number"
    DURATION = 'seconds, or a text such as "1h30m"; in columns milliseconds'
    CHOICE = "one of some words"
    TEXTS = "texts by name"
    RULE = "a rule of recurrence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One thing that may be said of a message."""

    name: str
    """Argument of ``schedule``, REST's field, ``X-Tarry-NAME``, ``--name`` of ``tarry send``."""
    kind: OptionKind
    help: str
    """A line for people who do not know the option yet."""
    label: str
    """Label in the console's form; ``hint`` is below the field."""
    hint: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)
    """Words of a choice, each with its label in a form."""
    default: str = ""
    """The choice that is meant without a word; empty: something else decides then."""
    low: int = 1
    high: int = INT32_MAX
    """Bounds of a whole number, inclusive."""
    is_name: bool = False
    """True if it names something, so that an empty text is a mistake."""
    stored_as: str = ""
    """Reserved property that stores it; empty: it has a column of its own in the schema, or is not stored."""
    is_condition: bool = False
    """True if it says whether to schedule the message, so that it is not stored."""
    not_in_bulk: str = ""
    """Reason to refuse it as a column of a DataFrame; empty: allowed."""

    @property
    def column(self) -> str:
        """Column of a batch that says it for many messages."""
        return f"{self.name}_ms" if self.kind is OptionKind.DURATION else self.name


OPTIONS = (
    Option(
        name="id",
        kind=OptionKind.TEXT,
        help="Your name for the message: sent again within the dedupe window, it is scheduled once.",
        label="Id",
        hint="sent again within the dedupe window, it is scheduled once",
        is_name=True,
    ),
    Option(
        name="key",
        kind=OptionKind.TEXT,
        help="Your name for the schedule in its topic: the same key again replaces what is pending.",
        label="Key",
        hint="your name for it in this topic; the same again replaces it",
        is_name=True,
    ),
    Option(
        name="on_key",
        kind=OptionKind.CHOICE,
        help="What to do where a message of this key is pending: replace it, keep it, refuse this one, or replace it "
        "and do nothing otherwise.",
        label="If one of this key is pending",
        choices={
            "replace": "replace it",
            "keep": "keep it, and not this one",
            "refuse": "refuse this one",
            "if_pending": "replace it; if none is, schedule nothing",
        },
        default="replace",
        is_condition=True,
        not_in_bulk="in bulk a row always replaces what is pending under its key: leave the column out",
    ),
    Option(
        name="if_seq",
        kind=OptionKind.WHOLE,
        help="Replace what is pending under the key only if it is still the one with this seq, as its receipt has it.",
        label="Only if that has this seq",
        hint="empty: whichever it is",
        low=0,
        high=SEQ_MAX,
        is_condition=True,
        not_in_bulk="in bulk a row always replaces what is pending under its key: leave the column out",
    ),
    Option(
        name="tag",
        kind=OptionKind.TEXT,
        help="A word that consumers filter by.",
        label="Tag",
        hint="consumers filter by it",
    ),
    Option(
        name="properties",
        kind=OptionKind.TEXTS,
        help="Texts by name, stored and delivered with the message.",
        label="Properties",
        hint="name=value, one a line",
    ),
    Option(
        name="ttl",
        kind=OptionKind.DURATION,
        help="For how long from now the message is of use.",
        label="Of use for",
        hint="from now on: 2h; empty: always",
    ),
    Option(
        name="late",
        kind=OptionKind.CHOICE,
        help="What to do with the message after its ttl: deliver it, drop it, or make it a dead letter.",
        label="If it is later than that",
        hint="as the topic says",
        choices={"deliver": "deliver it", "drop": "drop it", "dead": "to the dead letters"},
        stored_as=LATE,
    ),
    Option(
        name="tries",
        kind=OptionKind.WHOLE,
        help="How often the message is delivered at most, before it is a dead letter.",
        label="Tries",
        hint="before it is a dead letter; empty: as the group says",
    ),
    Option(
        name="repeat",
        kind=OptionKind.RULE,
        help='A rule: {"every": "1m"} or {"cron": "0 9 * * *", "zone": "Europe/Berlin"}, "times", "until" …',
        label="Repeat",
        not_in_bulk="series are not for bulk: schedule them one by one with a client",
    ),
    Option(
        name="order_key",
        kind=OptionKind.TEXT,
        help="Messages of one order key are delivered one after the other, by groups that keep order.",
        label="Order key",
        hint="one after the other, by groups that keep order",
        is_name=True,
        stored_as=ORDER_KEY,
    ),
    Option(
        name="spread",
        kind=OptionKind.DURATION,
        help="Moves the due time by some part of this, for herds: never to before it.",
        label="Spread over",
        hint="15m: due at some moment from then on, before 15 minutes are over",
        not_in_bulk="in bulk the due times are the table's: add a part of the spread to due_ms there",
    ),
)
"""In the order in which people are shown them; the first is the one that most messages have."""
BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}
STORED_AS: Mapping[str, Option] = {option.stored_as: option for option in OPTIONS if option.stored_as}
"""Options by the reserved property that stores them."""
LATE_WAYS = tuple(BY_NAME["late"].choices)


UNMET = ("not_pending", "changed")
"""Outcomes of a message that was not scheduled, for its condition did not hold."""


class MessageOptions(TypedDict, total=False):
    """Options of :data:`OPTIONS` as arguments; None is as if one were left out.

    - ``id``: the producer's name for this message. Sent again within the broker's dedupe window, it is scheduled once,
      and the second answer is the first one's.
    - ``key``: the producer's name for a schedule in the topic. ``on_key``: what to do when a message of this key is
      pending: "replace" it (the default), "keep" it (its receipt is the answer), "refuse" this one, or "if_pending":
      replace it, and schedule nothing if there is none. ``if_seq``: only if the one that is pending has this ``seq``.
    - ``tag``: a word that consumers filter by. ``properties``: texts by name.
    - ``spread``: a span, a day at most, by some part of which the due time is moved, never to before it: what is due at
      one moment comes over that time. The due time in the receipt is the final one.
    - ``ttl``: for how long from now it is of use: seconds, a timedelta, or a text such as "1h30m". ``late``: what
      happens once that has passed before a consumer took it: "deliver", "drop" (the default), or "dead" (it becomes a
      dead letter).
    - ``tries``: how often it is delivered at most, before it is a dead letter.
    - ``repeat``: a :class:`tarry.Repeat` (or its dict, or its JSON), by which it comes again.
    - ``order_key``: messages of one order key are delivered one after the other by groups that keep order.
    """

    id: str | None
    key: str | None
    tag: str | None
    properties: Mapping[str, str] | None
    spread: float | str | timedelta | None
    ttl: float | str | timedelta | None
    tries: int | None
    on_key: OnKeyWay | None
    if_seq: int | None
    repeat: RepeatLike | None
    order_key: str | None
    late: LateWay | None
