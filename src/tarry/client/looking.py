"""Looking: methods of the client that change nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tarry.api.operation import decoded as read_answer
from tarry.api.receipt import TopicPending
from tarry.api.views import Event, Forecast, Herd, History, Load, Page
from tarry.api.wire import CURSOR_KEY
from tarry.client.connection import Connection


class Looking:
    """For :class:`tarry.client.Client`. They raise InvalidArgumentError where a value is not allowed, and
    UnavailableError where there was no answer.
    """

    _connection: Connection
    _timeout_s: float

    def pending(self) -> list[TopicPending]:
        """What is pending, by topic."""
        return [TopicPending(**topic) for topic in self._look("pending")]

    def list_pending(
        self,
        *,
        topic: str | None = None,
        after_ms: int | None = None,
        until_ms: int | None = None,
        key: str | None = None,
        id: str | None = None,
        tag: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        bodies: bool = True,
    ) -> Page:
        """What is pending, in the order in which it falls due, a page at a time.

        A message that is pending all the while is on exactly one page, whatever is scheduled, cancelled, moved and
        delivered meanwhile. A page may have few rows, or none, and still a cursor: then there is more to look through.

        Args:
            after_ms, until_ms: due at the first or later, and before the second (UTC milliseconds).
            topic, key, id, tag: only these; all that is given must hold. The message of a key in a topic (the one that
                find_key finds) and that of an id that the broker made are found at once, others by looking through all
                that the other arguments leave.
            limit: most messages of the page; 1 to 1,000.
            cursor: that of the page before; the other arguments must be the same. It outlives restarts of the broker.
            bodies: without, bodies are left out (empty), and not read.
        """
        filters = {"topic": topic, "after_ms": after_ms, "until_ms": until_ms, "key": key, "id": id, "tag": tag}
        ticket = {"op": "list-pending", **filters, "limit": limit, "cursor": cursor, "bodies": bodies}
        rows = self._read(ticket)
        found = (rows.schema.metadata or {}).get(CURSOR_KEY.encode())
        return Page(rows.replace_schema_metadata(None), None if found is None else found.decode())

    def peek(self, topic: str, *, group: str | None = None, limit: int = 10) -> pa.RecordBatch:
        """What is ready, without taking it (columns: :data:`tarry.api.views.PEEKED`): the oldest messages that
        ``group`` has not settled, those in its consumers' hands and those that wait for another try included.

        Without a group: of the group that has the most of them; where the topic has no group, of all that is kept.

        Raises:
            NotFoundError: the topic has no such group.
        """
        return self._read({"op": "peek", "topic": topic, "group": group, "limit": limit})

    def forecast(self, *, topic: str | None = None, unit: str = "hour", until_ms: int | None = None) -> Forecast:
        """How many messages fall due in each minute, hour or day of UTC from now on, from statistics.

        Args:
            unit: "minute", "hour" or "day".
            until_ms: the default is an hour, two days, or 31 days ahead; at most 10,000 units.
        """
        answer = self._look("forecast", {"topic": topic, "unit": unit, "until_ms": until_ms})
        return read_answer(lambda: _forecast(answer), answer)

    def history(self, what: str, *, topic: str | None = None) -> History:
        """What happened to the message of a handle, or to the messages of an id: a time line, and what is not known.

        Args:
            what: a handle as it was given when the message was accepted, or an id (a producer's, or the broker's).
            topic: of an id: only of this topic, where it is also found shortly after it was accepted.

        Raises:
            ForgedHandleError: it is a handle of another broker.
        """
        answer = self._look("history", {"what": what, "topic": topic})
        return read_answer(lambda: _history(answer), answer)

    def status(self) -> dict[str, Any]:
        """The broker's health and counters."""
        return dict(self._look("status"))

    def overview(self, *, most: int = 100, next_due: bool = False) -> dict[str, Any]:
        """All figures of the broker at one moment: :meth:`status`, topics, groups (of each the ``most``), disk, intake,
        store, and lateness as histograms (:meth:`tarry.base.histogram.Histogram.from_json`).
        """
        return dict(self._look("overview", {"most": most, "next_due": next_due}))

    def ping(self) -> dict[str, Any]:
        """The broker's clock (``now_ms``) and ``version``."""
        return dict(self._look("ping"))

    def _look(self, action: str, body: dict[str, Any] | None = None) -> Any:
        return self._connection.action(action, body, timeout_s=self._timeout_s)

    def _read(self, ticket: dict[str, Any]) -> pa.RecordBatch:
        table = self._connection.read(ticket, timeout_s=self._timeout_s)
        found = table.combine_chunks().to_batches()
        return found[0] if found else pa.RecordBatch.from_pylist([], schema=table.schema)


def _history(answer: Any) -> History:
    return History(answer["what"], [Event(**event) for event in answer["events"]], answer["unknown"])


def _forecast(answer: Any) -> Forecast:
    herd = answer["herd"]
    loads = [Load(*load) for load in answer["loads"]]
    return Forecast(answer["unit"], answer["now_ms"], answer["until_ms"], loads, None if herd is None else Herd(**herd))
