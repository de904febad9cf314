"""Queries that change nothing: pending and ready messages, forecasts, histories, health."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Annotated, Any

from annotated_types import MaxLen
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from tarry.api.needs import Listed, Nothing, OnFound, OnTopic, Right
from tarry.api.operation import (
    PLAIN,
    Action,
    Codec,
    Form,
    Int64,
    Natural,
    Operation,
    Rows,
    data,
    int64s,
    known,
    many,
    named,
    one_batch,
    whole_batch,
)
from tarry.api.views import Event, Forecast, Herd, History, Load, Page
from tarry.base.errors import InvalidArgumentError
from tarry.base.record_batch import RecordBatch
from tarry.base.types import Int64s
from tarry.message.receipt import TopicPending

LISTED_MAX = 1000
"""Most messages on a page, and most that handles are asked for at a time."""
CURSOR_KEY = "tarry.cursor"
"""Key of the cursor in the metadata of a page's schema; absent on the last page."""


@dataclass(frozen=True, slots=True)
class GetPending(Operation[list[TopicPending]]):
    """Count pending messages by topic, exactly; with the next due time of each.

    The next due time may read a little from disk (None: none was found soon).
    """

    wire = Action("pending", "what is pending, by topic", many(data(TopicPending)))
    needs = Listed(lambda counts, may: [each for each in counts if may(each.topic, None)])
    _: KW_ONLY
    next_due: bool = True


def _page(table: Any) -> Page:
    rows = whole_batch(table)
    cursor = (rows.schema.metadata or {}).get(CURSOR_KEY.encode())
    return Page(rows.replace_schema_metadata(None), None if cursor is None else cursor.decode())


def _page_rows(page: Page) -> tuple[Any, list[RecordBatch]]:
    # The cursor is in the schema: nothing comes after the rows.
    metadata = {} if page.cursor is None else {CURSOR_KEY: page.cursor}
    rows = page.rows.replace_schema_metadata(metadata)
    return rows.schema, [rows]


@dataclass(frozen=True, slots=True)
class ListPending(Operation[Page]):
    """List pending messages by due time, a page at a time.

    A message that is pending all the while is on exactly one page, whatever is scheduled, cancelled, moved and
    delivered meanwhile. A page may have few rows, or none, and still a cursor: then there is more to look through.

    Args:
        after_ms, until_ms: due at the first or later, and before the second (UTC milliseconds).
        repeating: only occurrences of series.
        topic, key, id, tag: only these; all that is given must hold. The message of a key in a topic (the one that
            find_key finds) and that of an id that the broker made are found at once, others by looking through all that
            the other arguments leave.
        limit: most messages of the page; 1 to 1,000.
        cursor: that of the page before; the other arguments must be the same. It outlives restarts of the broker.
        bodies: without, bodies are left out (empty), and not read.
    """

    wire = Rows("list-pending", _page_rows, _page, "MESSAGE")
    needs = OnTopic(Right.BROWSE)
    _: KW_ONLY
    topic: str | None = None
    after_ms: Int64 | None = None
    until_ms: Int64 | None = None
    key: str | None = None
    id: str | None = None
    tag: str | None = None
    limit: Natural = 100
    cursor: str | None = None
    bodies: bool = True
    repeating: bool = False


@dataclass(frozen=True, slots=True)
class GetMessage(Operation[RecordBatch]):
    """Return the message of a number and a due time, as lists show them, with its body.

    The answer (:data:`tarry.api.row_schemas.FOUND`) has its place in the queue if it has fallen due. It has one row, or
    none where the message is not kept any more. Cancelled messages may be there.
    """

    wire = Rows("message", *one_batch("FOUND"), "FOUND")
    needs = OnFound(Right.BROWSE)
    seq: Int64
    due_ms: Int64


_Numbers = Annotated[Sequence[int] | Int64s, int64s(Annotated[list[Int64], MaxLen(LISTED_MAX)])]


@dataclass(frozen=True, slots=True, eq=False)
class GetHandles(Operation[list[str]]):
    """Return handles of listed messages, by their numbers and due times.

    With a handle a message can be cancelled, moved or looked up. Nothing is looked up here: a handle made of a number
    and a time that no message has finds none later.
    """

    wire = Action("handles", "handles of messages that were listed", named("handles"))
    needs = Nothing()
    seqs: _Numbers
    due_ms: _Numbers

    def __post_init__(self) -> None:
        if len(self.seqs) != len(self.due_ms):
            raise InvalidArgumentError(
                f"{len(self.seqs)} seqs and {len(self.due_ms)} due times; allowed: the same number of both"
            )


@dataclass(frozen=True, slots=True)
class Peek(Operation[RecordBatch]):
    """Return ready messages without taking them (columns: :data:`tarry.api.row_schemas.PEEKED`).

    They are the oldest that ``group`` has not settled, including those that its consumers hold and those that wait for
    another try.

    Without a group: those of the group that has the most of them; where the topic has no group, all that are kept.
    ``waiting_only``: only messages that nobody has, and that would be handed out now.

    Raises:
        InvalidArgumentError: ``limit`` is not 1 to 1,000. NotFoundError: the topic has no such group.
    """

    wire = Rows("peek", *one_batch("PEEKED"), "PEEKED")
    needs = OnTopic(Right.BROWSE)
    topic: str
    _: KW_ONLY
    group: str | None = None
    limit: Natural = 10
    waiting_only: bool = False


class ForecastJson(TypedDict):
    """A :class:`tarry.api.views.Forecast` as JSON; a load is ``[from_ms, rows, unsure]``."""

    unit: str
    now_ms: int
    until_ms: int
    loads: list[list[int]]
    herd: Herd | None
    herds: list[Herd]


def _forecast(answer: Any) -> Forecast:
    herd = answer["herd"]
    loads = [Load(*load[:3]) for load in answer["loads"]]
    herds = [known(Herd, each) for each in answer.get("herds", ())]
    largest = None if herd is None else known(Herd, herd)
    return Forecast(answer["unit"], answer["now_ms"], answer["until_ms"], loads, largest, herds)


def _forecast_to_json(forecast: Forecast) -> dict[str, Any]:
    return {**asdict(forecast), "loads": [[load.from_ms, load.rows, load.unsure] for load in forecast.loads]}


@dataclass(frozen=True, slots=True)
class GetForecast(Operation[Forecast]):
    """Forecast how many messages fall due in each minute, hour or day of UTC from now on.

    The near future is counted; beyond it, the store's files say what they have, by topic and time. Files that there is
    no time to look at are spread evenly over the span where their messages may be: the truth is within ``unsure`` of
    ``rows``.

    Args:
        unit: "minute", "hour" or "day".
        until_ms: the default is an hour, two days, or 31 days ahead; at most 10,000 units.
    """

    wire = Action(
        "forecast", "how many messages fall due when", Codec(_forecast_to_json, _forecast, shape=ForecastJson)
    )
    needs = OnTopic(Right.LOOK)
    _: KW_ONLY
    topic: str | None = None
    unit: str = "hour"
    until_ms: Natural | None = None


def _history(answer: Any) -> History:
    return History(answer["what"], [known(Event, event) for event in answer["events"]], answer["unknown"])


@dataclass(frozen=True, slots=True)
class GetHistory(Operation[History]):
    """Return what is known of the past and future of a handle's message, or of an id's messages.

    The answer is a time line, and a list of what is not known.

    Args:
        what: a handle as it was given when the message was accepted, or an id (a producer's, or the broker's).
        topic: of an id: only of this topic, where it is also found shortly after it was accepted.

    Raises:
        InvalidArgumentError: ``what`` is no text, or ``topic`` no topic. ForgedHandleError: another broker's handle.
    """

    wire = Action("history", "what happened to a message", Codec(asdict, _history))
    needs = OnFound(Right.LOOK)
    what: str
    _: KW_ONLY
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class GetStatus(Operation[dict[str, Any]]):
    """Health and counters, as plain data."""

    wire = Action("status", "health and counters", PLAIN)
    needs = OnTopic(Right.LOOK)


def _lists(pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    return [list(pair) for pair in pairs]


def _pairs(lists: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((topic, group) for topic, group in lists)


@dataclass(frozen=True, slots=True)
class GetOverview(Operation[dict[str, Any]]):
    """Return all figures at one moment, as plain data.

    They are those of :class:`GetStatus`, and ``now_ms``, ``disk``, ``memory``, ``topics``, ``groups``, ``intake``,
    ``store`` and ``lateness`` (see :class:`tarry.base.histogram.Histogram`).

    Args:
        most: number of topics, and of groups, that are listed one by one; ``always`` and ``always_groups`` (topic and
            group) are listed, too.
        next_due: with the next due time of each topic, which may read from disk.
    """

    wire = Action("overview", "all figures at one moment", PLAIN)
    needs = OnTopic(Right.LOOK)
    _: KW_ONLY
    most: Natural = 100
    next_due: bool = False
    always: Annotated[Sequence[str], Form(list[str], list, tuple)] = ()
    always_groups: Annotated[Sequence[tuple[str, str]], Form(list[list[str]], _lists, _pairs)] = ()


@dataclass(frozen=True, slots=True)
class Ping(Operation[dict[str, Any]]):
    """The broker's clock (``now_ms``) and ``version``."""

    wire = Action("ping", "is the broker there?", PLAIN)
    needs = Nothing()
