"""A consumer group of a broker elsewhere, and its consumers, as fronts see them.

A poll returns messages that the broker has sent; if there are none, the broker is asked, and its answer wakes the
group's listeners. So each waiting consumer has one question on its way, and messages are leased to it only when there
is somebody for them. Messages that arrive for a question that was withdrawn meanwhile are sent back at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any
from weakref import ref

import numpy as np
import pyarrow as pa

from tarry.api.accounts import QuotaAccount, charge_filtering
from tarry.api.consuming import OnLease, OnPolled, OnResult, OnSettled
from tarry.api.filter_pause import FilterPause
from tarry.api.groups import GroupSettings
from tarry.api.operation import data
from tarry.api.row_schemas import DELIVERY
from tarry.base.clock import Clock
from tarry.base.errors import ClosedError, InvalidArgumentError, TarryError
from tarry.base.listeners import Listeners
from tarry.base.types import Int64s, Mask
from tarry.fronts.gateway.remote.link import Link
from tarry.link.frames import (
    FrameKind,
    Poll,
    SettleFrame,
    SettleOp,
    decode_batch,
    decode_int,
    decode_mask,
    encode_int,
)
from tarry.link.peer import OnAnswer
from tarry.message.filter import EVERYTHING, parse_filter, unwanted_by
from tarry.message.filter_sql import SqlFilter

_SETTINGS = data(GroupSettings)

ReadEnds = Callable[["RemoteGroup"], tuple[int, int]]


class RemoteGroup:
    """Implements :class:`tarry.api.consuming.ConsumerGroup`.

    Calls for each message are on the loop's thread alone; :attr:`queue_ends` waits for the broker.
    """

    gathers = True
    is_filtering = False

    def __init__(
        self, link: Link, state: Mapping[str, Any], read_ends: ReadEnds, clock: Clock, may_send: Callable[[], bool]
    ) -> None:
        self.number: int = state["number"]
        self.topic_name: str = state["topic"]
        self.name: str = state["group"]
        self._link = link
        self._read_ends, self._may_send = read_ends, may_send
        self._listeners = Listeners()
        self._pause = FilterPause(self.name, self.topic_name, clock)
        self._filter = EVERYTHING, parse_filter(EVERYTHING)
        """The filter as text and parsed, for consumers that read by offsets."""
        self.update(state)

    def update(self, state: Mapping[str, Any]) -> None:
        """Apply the state that the broker reports."""
        self._pause.end()  # its filter may have been changed
        self.settings: GroupSettings = _SETTINGS.decode(state["settings"])
        self.ordered: bool = state["ordered"]
        self.waits_for_acks: bool = state["waits_for_acks"]
        self.deleted: bool = state["deleted"]
        self.closed: bool = state["closed"]

    def close(self) -> None:
        """Close the group, as it no longer exists as far as is known here."""
        self.closed = True
        self.announce()

    @property
    def may_send(self) -> bool:
        return self._may_send()

    @property
    def queue_ends(self) -> tuple[int, int]:
        return self._read_ends(self)

    def wants(self, batch: pa.RecordBatch, account: QuotaAccount | None = None) -> Mask:
        text, wanted = self._filter
        if text != self.settings.filter:
            text = self.settings.filter
            self._filter = text, (wanted := parse_filter(text))
        if not isinstance(wanted, SqlFilter):
            return ~unwanted_by(self.name, None if wanted.matches_all else wanted, batch)
        self._pause.check()
        matching = charge_filtering(account, lambda: self._pause.mask(wanted, batch))
        return ~unwanted_by(self.name, None, batch) & matching

    # -- consuming -----------------------------------------------------------------------------------------------------

    def subscribe(self, *, prefetch: int, lease_ms: int, account: QuotaAccount | None = None) -> RemoteSubscription:
        return RemoteSubscription(self, self._link, prefetch, lease_ms, account)

    def listen(self, on_news: Callable[[], None]) -> Callable[[], None]:
        return self._listeners.add(on_news)

    def announce(self) -> None:
        """Wake the listeners: there may be something new."""
        self._listeners.tell()

    # -- settling ------------------------------------------------------------------------------------------------------

    def ack(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        return self._settle(SettleOp.ACK, 0, leases, offsets, on_result)

    def ack_each(self, leases: Int64s, offsets: Int64s, on_settled: OnSettled) -> None:
        def on_answer(answer: memoryview | TarryError) -> None:
            on_settled(answer if isinstance(answer, TarryError) else decode_mask(answer))

        self._ask(SettleFrame(SettleOp.ACK_EACH, self.number, 0, leases, offsets), on_answer)

    def nack(
        self,
        leases: Int64s,
        offsets: Int64s,
        delay_ms: int | None = None,
        on_result: OnResult | None = None,
        reason: str | None = None,
    ) -> int:
        return self._settle(SettleOp.NACK, -1 if delay_ms is None else delay_ms, leases, offsets, on_result, reason)

    def reject(
        self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None, reason: str | None = None
    ) -> int:
        return self._settle(SettleOp.REJECT, 0, leases, offsets, on_result, reason)

    def give_back(self, leases: Int64s, offsets: Int64s) -> int:
        return self._settle(SettleOp.GIVE_BACK, 0, leases, offsets, None)

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        return self._settle(SettleOp.EXTEND, lease_ms, leases, offsets, None)

    def change_lease(self, lease: int, offset: int, lease_ms: int, on_lease: OnLease) -> None:
        def on_answer(answer: memoryview | TarryError) -> None:
            if isinstance(answer, TarryError):
                on_lease(answer)
            else:
                on_lease(decode_int(answer) if len(answer) else None)

        one = np.array([lease], np.int64), np.array([offset], np.int64)
        self._ask(SettleFrame(SettleOp.CHANGE, self.number, lease_ms, *one), on_answer)

    def _settle(
        self,
        op: SettleOp,
        argument: int,
        leases: Int64s,
        offsets: Int64s,
        on_result: OnResult | None,
        reason: str | None = None,
    ) -> int:
        settle = SettleFrame(op, self.number, argument, leases, offsets, reason)
        if on_result is None:
            self._link.send(FrameKind.SETTLE, 0, settle.encode())
            return len(leases)

        def on_answer(answer: memoryview | TarryError) -> None:
            on_result(answer if isinstance(answer, TarryError) else None)

        self._ask(settle, on_answer)
        return len(leases)

    def _ask(self, settle: SettleFrame, on_answer: OnAnswer) -> None:
        self._link.ask(FrameKind.SETTLE, on_answer, settle.encode())


class _Weak:
    """Receives for a subscription, and does not keep it alive."""

    __slots__ = ("_link", "_of")

    def __init__(self, of: ref[RemoteSubscription], link: Link) -> None:
        self._of = of
        self._link = link

    def on_batch(self, number: int, payload: memoryview) -> None:
        """Pass a batch on; it is for others if the subscription is gone."""
        subscription = self._of()
        if subscription is not None:
            subscription.on_batch(number, payload)
        else:
            # It is being collected, in another thread perhaps: its DROP, which leaves leases alone, is on its way.
            self._link.send(FrameKind.UNTAKEN, number)

    def on_polled(self, error: TarryError | None) -> None:
        """Pass an error on."""
        subscription = self._of()
        if subscription is not None:
            subscription.on_polled(error)


class _PollNow:
    """Receives what there is at the time of one poll."""

    __slots__ = ("_link", "_number", "_on_polled")

    def __init__(self, link: Link, number: int, on_polled: OnPolled) -> None:
        self._link, self._number, self._on_polled = link, number, on_polled

    def on_batch(self, number: int, payload: memoryview) -> None:
        """Take the messages; see :class:`tarry.fronts.gateway.remote.link.PollReceiver`."""
        self._link.forget(self._number)
        self._link.send(FrameKind.TAKEN, number)
        batch = decode_batch(payload, DELIVERY)
        self._link.rows_out += batch.num_rows
        self._on_polled(batch)

    def on_polled(self, error: TarryError | None) -> None:
        """Take an error, or that there are none; see :class:`tarry.fronts.gateway.remote.link.PollReceiver`."""
        self._link.forget(self._number)
        self._on_polled(error)


class RemoteSubscription:
    """Implements :class:`tarry.api.consuming.DistantSubscription`, for callers that do not wait.

    On the loop's thread.
    """

    held_back = None
    filters_first = False

    def __init__(
        self, group: RemoteGroup, link: Link, prefetch: int, lease_ms: int, account: QuotaAccount | None
    ) -> None:
        self.group = group
        self.account = account
        """Told by its identity's name to the broker, which counts what is handed out, and filters."""
        self.closed = False
        self._link = link
        self._prefetch = prefetch
        self._lease_ms = lease_ms
        self._number: int | None = None
        """None until the broker has been asked for messages."""
        self._asked = False
        self._ready: deque[tuple[int, pa.RecordBatch]] = deque()
        self._error: TarryError | None = None

    def poll(self, rows_max: int) -> tuple[pa.RecordBatch | None, float | None]:
        if self.closed or self.group.closed:
            return None, None
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._ready:
            number, batch = self._ready.popleft()
            self._link.send(FrameKind.TAKEN, number)
            self._link.rows_out += batch.num_rows
            return batch, None
        if not self._asked:
            self._asked = True
            self._ask(rows_max)
        return None, None

    def poll_now(self, rows_max: int, on_polled: OnPolled) -> None:
        if self.closed or self.group.closed or self._link.lost:
            on_polled(None)
            return
        number = self._link.number()
        self._link.receive(number, _PollNow(self._link, number, on_polled))
        poll = self._poll_frame(rows_max)
        self._link.send(FrameKind.POLL_NOW, number, poll.encode())

    def withdraw(self) -> None:
        if self._asked and self._number is not None:
            self._asked = False
            self._link.send(FrameKind.WITHDRAW, self._number)

    def renew(self, held_ms_max: int) -> int:
        if self._number is not None:
            self._link.send(FrameKind.RENEW, self._number, encode_int(held_ms_max))
        return 0

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self._number is not None:
                self._link.send(FrameKind.CLOSE, self._number)
                self._link.forget(self._number)
            for number, _ in self._ready:
                self._link.send(FrameKind.TAKEN, number)  # it was given back with the rest
            self._ready.clear()

    def ack(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        self._check_open()
        return self.group.ack(leases, offsets, on_result)

    def nack(
        self,
        leases: Int64s,
        offsets: Int64s,
        delay_ms: int | None = None,
        on_result: OnResult | None = None,
        reason: str | None = None,
    ) -> int:
        self._check_open()
        return self.group.nack(leases, offsets, delay_ms, on_result, reason)

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        self._check_open()
        return self.group.extend(leases, offsets, lease_ms)

    @property
    def lease_ms(self) -> int:
        return self._lease_ms

    @property
    def silent(self) -> bool:
        return False  # a consumer that polls has shown that it is alive

    def resize(self, window: int) -> None:
        self._prefetch = window

    def give_back(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        raise InvalidArgumentError("what was polled behind a gateway is given back by nack; allowed: nack")

    @property
    def held(self) -> int:
        raise InvalidArgumentError("how much a consumer holds is not known behind a gateway")

    def fetch(self, rows_max: int = 0, wait_s: float | None = None) -> pa.RecordBatch | None:
        raise InvalidArgumentError("fetch waits, which consumers behind a gateway do not; allowed: poll")

    def _check_open(self) -> None:
        if self.group.closed:
            raise ClosedError(f"group {self.group.name!r} of topic {self.group.topic_name!r} is closed")

    def _ask(self, rows_max: int) -> None:
        if self._number is None:
            self._number = self._link.number()
            self._link.receive(self._number, _Weak(ref(self), self._link))
        self._link.send(FrameKind.POLL, self._number, self._poll_frame(rows_max).encode())

    def _poll_frame(self, rows_max: int) -> Poll:
        identity = "" if self.account is None else self.account.name
        return Poll(self.group.number, self._prefetch, self._lease_ms, rows_max, identity)

    # -- called by the link --------------------------------------------------------------------------------------------

    def on_batch(self, number: int, payload: memoryview) -> None:
        """Take a batch; see :class:`tarry.fronts.gateway.remote.link.PollReceiver`."""
        if not self._asked:
            self._link.send(FrameKind.UNTAKEN, number)  # the poll was withdrawn while the batch was on its way
            return
        self._asked = False
        self._ready.append((number, decode_batch(payload, DELIVERY)))
        self.group.announce()

    def on_polled(self, error: TarryError | None) -> None:
        """Take an error; see :class:`tarry.fronts.gateway.remote.link.PollReceiver`."""
        if isinstance(error, ClosedError):
            self.group.close()
            return
        self._asked = False
        self._error = error
        self.group.announce()

    def __del__(self) -> None:
        # A consumer that receives once has a subscription for that, and drops it.
        if self._number is not None and not self.closed:
            for number, _ in self._ready:
                self._link.send_from_anywhere(FrameKind.UNTAKEN, number)
            self._link.send_from_anywhere(FrameKind.DROP, self._number)
            self._link.forget(self._number)
