"""What a broker can be asked, as its methods: :class:`tarry.broker.Broker` has them from here."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tarry.api.outcome import Outcome
from tarry.api.receipt import TopicPending
from tarry.api.views import Forecast, History, Page
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.broker.commands.write_batch import WriteBatch, places
from tarry.broker.queries import overview
from tarry.broker.queries.forecast import forecast
from tarry.broker.queries.history import history
from tarry.broker.queries.lateness import Lateness
from tarry.broker.queries.listing import Listing, list_pending
from tarry.broker.queries.peek import peek
from tarry.log.files import Files
from tarry.names import Entry

if TYPE_CHECKING:
    from tarry.broker.recovery import Rooms


LOOKERS_MAX = 4
"""So many look at a time, the others wait: each may need some tens of megabytes, and none is in a hurry."""
_lookers = threading.BoundedSemaphore(LOOKERS_MAX)


class Looking:
    """Thread-safe; nothing here changes anything."""

    config: Config
    clock: Clock
    lateness: Lateness
    _rooms: Rooms
    _files: Files

    def _check_open(self) -> None:
        raise NotImplementedError

    def pending(self, *, next_due: bool = True) -> list[TopicPending]:
        """See :meth:`tarry.broker.Broker.pending`."""
        raise NotImplementedError

    def begin_round(self, next_seq: int) -> WriteBatch:
        """See :class:`tarry.broker.producing.Producing`."""
        raise NotImplementedError

    def status(self) -> dict[str, Any]:
        """See :meth:`tarry.broker.Broker.status`."""
        raise NotImplementedError

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
        delivered meanwhile.

        Args:
            after_ms, until_ms: due at the first or later, and before the second.
            topic, key, id, tag: only these; all that is given must hold. The message of a key in a topic (the one that
                find_key finds) and that of an id that the broker made are found at once, others by looking through all
                that the other arguments leave.
            limit: most messages of the page; 1 to 1,000.
            cursor: that of the page before; the other arguments must be the same.
            bodies: without, bodies are left out (empty), and not read.

        Raises:
            InvalidArgumentError: names the argument, its value and what is allowed.
        """
        self._check_open()
        with _lookers:
            return list_pending(self._rooms, Listing.of(topic, after_ms, until_ms, key, id, tag, limit, cursor, bodies))

    def peek(self, topic: str, *, group: str | None = None, limit: int = 10) -> pa.RecordBatch:
        """What is ready, without leasing it (columns: :data:`tarry.api.views.PEEKED`): the oldest messages that
        ``group`` has not settled, those in its consumers' hands and those that wait for another try included.

        Without a group: of the group that has the most of them; where the topic has no group, of all that is kept.

        Raises:
            InvalidArgumentError: ``limit`` is not 1 to 1,000. NotFoundError: the topic has no such group.
        """
        self._check_open()
        with _lookers:
            return peek(self._rooms, topic, group, limit)

    def forecast(self, *, topic: str | None = None, unit: str = "hour", until_ms: int | None = None) -> Forecast:
        """How many messages fall due in each minute, hour or day of UTC from now on.

        What the wheel and the intake hold is counted; of the store only statistics are read: what lies in one file or
        row group together is spread over its span evenly, and counts as unsure.

        Args:
            unit: "minute", "hour" or "day".
            until_ms: the default is an hour, two days, or 31 days ahead; at most 10,000 units.

        Raises:
            InvalidArgumentError: names the argument, its value and what is allowed.
        """
        self._check_open()
        pending = {entry.topic: entry.pending for entry in self.pending(next_due=False)}
        with _lookers:
            return forecast(self._rooms, self.clock.now_ms(), pending, topic, unit, until_ms)

    def history(self, what: str, *, topic: str | None = None) -> History:
        """What happened to the message of a handle, or to the messages of an id: a time line, and what is not known.

        Args:
            what: a handle as it was given when the message was accepted, or an id (a producer's, or the broker's).
            topic: of an id: only of this topic, where it is also found shortly after it was accepted.

        Raises:
            InvalidArgumentError: ``what`` is no text, or ``topic`` no topic. ForgedHandleError: it is not a handle of
            this broker.
        """
        self._check_open()

        def judge(entry: Entry) -> Outcome:
            [outcome] = self.begin_round(0).outcomes(*places([entry]))
            return outcome

        with _lookers:
            return history(self._rooms, judge, self.clock.now_ms(), self.config.retention_ms, what, topic)

    def overview(
        self,
        *,
        most: int = 100,
        next_due: bool = False,
        always: Collection[str] = (),
        always_groups: Collection[tuple[str, str]] = (),
    ) -> dict[str, Any]:
        """All figures at one moment, as plain data: :meth:`status`, and ``now_ms``, ``disk``, ``topics``, ``groups``,
        ``intake``, ``store`` and ``lateness`` (histograms; see :class:`tarry.base.histogram.Histogram`).

        Args:
            most: how many topics, and groups, are told one by one; ``always`` and ``always_groups`` are, besides.
            next_due: with the next due time of each topic, which may read from disk.
        """
        rooms, data = self._rooms, self.config.data
        return {
            **self.status(),
            "now_ms": self.clock.now_ms(),
            "disk": {"free_bytes": self._files.free_bytes(data), "free_bytes_min": self.config.disk_free_bytes_min},
            "topics": overview.topics(rooms, self.pending(next_due=next_due), most, always),
            "groups": overview.groups(rooms, most, always_groups),
            "wheel": overview.wheel(rooms),
            "intake": overview.intake(rooms),
            "store": overview.store(rooms),
            "lateness": {**overview.lateness(self.lateness), "fsync_us": overview.fsyncs(self._files)},
        }
