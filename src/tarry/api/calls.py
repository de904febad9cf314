"""The operations as methods: :class:`Calls` for whoever may wait, :class:`AsyncCalls` for asyncio.

A broker in this process and a client of one elsewhere have them from here, so that they look alike. To consume and to
schedule differ: there each has its own way, with the arguments of :mod:`tarry.api.schedule`.
"""

from __future__ import annotations

from typing import TypeVar

from tarry.api import operations as ops
from tarry.api.operation import Operation, awaited, sync
from tarry.api.outcome import Outcome
from tarry.base.errors import InvalidArgumentError

R = TypeVar("R")


class Calls:
    """Each method makes an operation and has :meth:`call` carry it out; any thread."""

    def call(self, operation: Operation[R]) -> R:
        """Carry an operation out, and wait for its result.

        Raises:
            TarryError: it was refused, or there was no answer.
        """
        raise NotImplementedError

    cancel_many = sync(ops.Cancel)
    cancel_keys = sync(ops.CancelKeys)
    reschedule = sync(ops.Reschedule.of)
    reschedule_key = sync(ops.Reschedule.of_key)
    find_key = sync(ops.FindKey)

    set_group = sync(ops.SetGroup.of)
    group_info = sync(ops.GetGroup)
    groups = sync(ops.ListGroups)
    delete_group = sync(ops.DeleteGroup)
    pause = sync(ops.PauseGroup)
    resume = sync(ops.ResumeGroup)
    seek = sync(ops.Seek)
    set_topic = sync(ops.SetTopic.of)
    topic_info = sync(ops.GetTopic)
    has_topic = sync(ops.HasTopic)

    dead_letters = sync(ops.ListDeadLetters)
    respawn = sync(ops.Respawn)
    purge = sync(ops.Purge)

    pending = sync(ops.GetPending)
    list_pending = sync(ops.ListPending)
    peek = sync(ops.Peek)
    forecast = sync(ops.GetForecast)
    history = sync(ops.GetHistory)
    status = sync(ops.GetStatus)
    overview = sync(ops.GetOverview)
    ping = sync(ops.Ping)

    jobs = sync(ops.ListJobs)
    cancel_job = sync(ops.CancelJob)

    queue_state = sync(ops.GetQueues)
    read_queue = sync(ops.ReadQueue)
    offset_at = sync(ops.FindOffset)
    follow_queue = sync(ops.FollowQueue)
    advance_group = sync(ops.AdvanceGroup)
    cancelled_between = sync(ops.ReadCancellations)

    def cancel(self, handle: str) -> Outcome:
        """Cancel the message that ``handle`` names, durably; of a series, all that is to come.

        Returns:
            "done": no consumer will ever get it. "delivered": it was due already. "cancelled": it had been cancelled,
            replaced or rescheduled before. "unknown": nothing is known of it any more.

        Raises:
            InvalidArgumentError: no handle, or a damaged one. ForgedHandleError: this broker did not make it.
            OverloadedError, DiskFullError: not now; nothing was changed.
            UnavailableError: no answer. It may have been cancelled; ask again: "cancelled" says that it was.
        """
        try:
            [outcome] = self.cancel_many([handle])
        except InvalidArgumentError as error:
            raise _of_one(error) from None
        return outcome

    def cancel_key(self, topic: str, key: str) -> Outcome:
        """Cancel what is pending under ``key`` in ``topic``; "unknown" where nothing is known of that key."""
        [outcome] = self.cancel_keys(topic, [key])
        return outcome


class AsyncCalls:
    """:class:`Calls`, to be awaited."""

    async def call(self, operation: Operation[R]) -> R:
        """See :meth:`Calls.call`."""
        raise NotImplementedError

    cancel_many = awaited(ops.Cancel)
    cancel_keys = awaited(ops.CancelKeys)
    reschedule = awaited(ops.Reschedule.of)
    reschedule_key = awaited(ops.Reschedule.of_key)
    find_key = awaited(ops.FindKey)

    set_group = awaited(ops.SetGroup.of)
    group_info = awaited(ops.GetGroup)
    groups = awaited(ops.ListGroups)
    delete_group = awaited(ops.DeleteGroup)
    pause = awaited(ops.PauseGroup)
    resume = awaited(ops.ResumeGroup)
    seek = awaited(ops.Seek)
    set_topic = awaited(ops.SetTopic.of)
    topic_info = awaited(ops.GetTopic)
    has_topic = awaited(ops.HasTopic)

    dead_letters = awaited(ops.ListDeadLetters)
    respawn = awaited(ops.Respawn)
    purge = awaited(ops.Purge)

    pending = awaited(ops.GetPending)
    list_pending = awaited(ops.ListPending)
    peek = awaited(ops.Peek)
    forecast = awaited(ops.GetForecast)
    history = awaited(ops.GetHistory)
    status = awaited(ops.GetStatus)
    overview = awaited(ops.GetOverview)
    ping = awaited(ops.Ping)

    jobs = awaited(ops.ListJobs)
    cancel_job = awaited(ops.CancelJob)

    queue_state = awaited(ops.GetQueues)
    read_queue = awaited(ops.ReadQueue)
    offset_at = awaited(ops.FindOffset)
    follow_queue = awaited(ops.FollowQueue)
    advance_group = awaited(ops.AdvanceGroup)
    cancelled_between = awaited(ops.ReadCancellations)

    async def cancel(self, handle: str) -> Outcome:
        """As :meth:`Calls.cancel`."""
        try:
            [outcome] = await self.cancel_many([handle])
        except InvalidArgumentError as error:
            raise _of_one(error) from None
        return outcome

    async def cancel_key(self, topic: str, key: str) -> Outcome:
        """As :meth:`Calls.cancel_key`."""
        [outcome] = await self.cancel_keys(topic, [key])
        return outcome


def _of_one(error: InvalidArgumentError) -> InvalidArgumentError:
    """``error`` without the place among many: one handle was given."""
    error.args = (str(error).removeprefix("handle 0: "),)
    return error
