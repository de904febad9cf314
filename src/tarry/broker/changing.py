"""How messages are cancelled and moved, by the broker's methods: :class:`tarry.broker.Broker` has them from here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import pyarrow as pa

from tarry.api.jobs import Job, JobCancelled
from tarry.api.outcome import Outcome, Rescheduled
from tarry.api.receipt import Receipt
from tarry.base.delay import Delay
from tarry.broker.bulk import Bulk
from tarry.broker.changes import Changes
from tarry.broker.producing import Producing


class Changing(Producing):
    """Thread-safe. How it is done is in ``changes``."""

    _changes: Changes
    bulk: Bulk

    def cancel(self, handle: str) -> Outcome:
        """Cancel a message, or the series that it began; durable when it returns. "done": no consumer will get it.

        Raises:
            InvalidArgumentError, ForgedHandleError: it is no handle, or not one of this broker.
            OverloadedError, DiskFullError: not now; nothing was changed.
        """
        [outcome] = self.cancel_many([handle])
        return outcome

    def cancel_many(self, handles: Sequence[str]) -> list[Outcome]:
        """:meth:`cancel` for many, in one go; a bad handle refuses all of them."""
        return self._changes.cancel_many(handles)

    def cancel_key(self, topic: str, key: str) -> Outcome:
        """:meth:`cancel` for the message of a key."""
        [outcome] = self.cancel_keys(topic, [key])
        return outcome

    def cancel_keys(self, topic: str, keys: Sequence[str]) -> list[Outcome]:
        """:meth:`cancel_key` for many."""
        return self._changes.cancel_keys(topic, keys)

    def reschedule(self, handle: str, *, delay: Delay | None = None, due: datetime | int | None = None) -> Rescheduled:
        """Give a pending message another due time. It keeps its content and id, and has a new handle.

        Raises:
            InvalidArgumentError, ForgedHandleError: it is no handle, or not one of this broker; or no due time.
        """
        return self._changes.reschedule(handle, self._due_ms(delay, due))

    def reschedule_key(
        self, topic: str, key: str, *, delay: Delay | None = None, due: datetime | int | None = None
    ) -> Rescheduled:
        """:meth:`reschedule` for the message of a key, which keeps its key."""
        return self._changes.reschedule_key(topic, key, self._due_ms(delay, due))

    def replace_key(self, topic: str, key: str, made: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Rescheduled:
        """Put another message in the place of the one that is pending under a key, both in one decision and durably:
        ``made`` gets that (one row of :data:`tarry.base.message.SCHEMA`) and gives the other (one row of
        :data:`tarry.base.message.UNNUMBERED`, of any topic). For fronts with transactions, whose rows are checked
        already.

        Raises:
            OverloadedError, DiskFullError: not now; nothing was changed.
        """
        return self._changes.replace_key(topic, key, made)

    def find_key(self, topic: str, key: str) -> Receipt | None:
        """The message that is pending under a key; None when none is."""
        return self._changes.find_key(topic, key)

    def cancel_job(self, job: str) -> JobCancelled:
        """Cancel all that is pending of a bulk job, durably; a job that has not committed never will.

        Raises:
            UnavailableError, OverloadedError, DiskFullError: not now; nothing was cancelled.
        """
        return self.bulk.cancel(job)

    def jobs(self, job: str | None = None, *, limit: int = 100) -> list[Job]:
        """A bulk job, or those that were begun last, the newest first."""
        return self.bulk.list(job, limit)
