"""Dependencies that all groups of a broker share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from tarry.api.retry import RetryPolicy
from tarry.base.clock import Clock
from tarry.base.types import Int32s, Int64s
from tarry.groups.filter_threads import RunApart
from tarry.groups.leases import OnLeaseEnd
from tarry.groups.states import State, States
from tarry.queue.journal import Journal

ScheduleRows: TypeAlias = Callable[[pa.RecordBatch, Callable[[Any], None]], None]
"""Schedules messages (:data:`tarry.message.schema.UNNUMBERED`), as ``Broker.put`` does.

The callback gets a TarryError if they were refused, anything else when they are durable; from any thread, and perhaps
before the call returns. The call itself may raise a TarryError instead.
"""


class HandOutTraces(Protocol):
    """Is told of each hand-out, with the group's lock held."""

    def handed_out(
        self,
        topic: str,
        group: str,
        batch: pa.RecordBatch,
        offsets: Int64s,
        attempts: Int32s,
        states: State | States,
        now_ms: int,
    ) -> OnLeaseEnd | None:
        """Note that rows were handed out, that were in ``states`` (all, or each).

        Their columns: :data:`tarry.message.schema.SCHEMA`.

        Returns whom to tell when some of them are leased no more; None: nobody wants to know.
        """
        ...


@dataclass(frozen=True, slots=True)
class GroupServices:
    """Dependencies that all groups of a broker share."""

    clock: Clock
    journal: Journal
    ticket: Callable[[], int]
    """See :meth:`tarry.queue.log.ReadyLog.ticket`."""
    lease_numbers: Iterator[int]
    on_handout: Callable[[Int64s, Int64s, int, str, int], None]
    """Callback for hand-outs, called with the group's lock held.

    Arguments: the due times; of messages that no consumer had before, the earliest moments at which they could be had;
    now; the topic; and since when the consumer had been waiting for more.
    """
    retry: RetryPolicy
    """Back-off of the groups that have none of their own."""
    may_hand_out: Callable[[], bool] | None = None
    """Asked before a hand-out, under the group's lock: False while another broker may own the logs."""
    run_apart: RunApart | None = None
    """Threads that evaluate slow filters; None: they are evaluated in the caller's thread."""
    traces: HandOutTraces | None = None
    """Makes spans of hand-outs; None: nobody does."""
