"""Waiting for a group's messages without a thread: receives, first come, first served, and pulls.

A receive costs the client and the server far more than a message in it does. So once a queue of receives has taken all
messages that were ready, the group is asked again only after ``GATHER_S``. A receive that comes rarely is still served
at once, and under load each receive gets several messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import pyarrow as pa

from tarry.api.accounts import HeldBack, QuotaAccount
from tarry.api.consuming import ConsumerGroup, DistantSubscription, Subscription
from tarry.api.local import AnyBroker
from tarry.api.quotas import DELAY_S_MAX, FILTERING
from tarry.base.errors import TarryError
from tarry.base.event_loop import post, settle_future
from tarry.base.types import Int64s
from tarry.fronts.kit.held_back import check_held_back, wait_or_rest

GATHER_S = 0.004
"""Seconds for which messages gather after all ready ones have been handed out."""

LONG_S = 0.002
"""Seconds that a look at all that wait, in vain, may take before there is a rest."""
REST = 9
"""So many times as long as such a look is the rest after it: a tenth of a loop at most is for it."""
CROWDED_S = 0.25
"""Seconds between checks for a client having read enough of its answers to get more."""

_TIMER_S = 0.001
"""By so many seconds two timers of the loop are apart, so that they run in their order."""

WAIT_S_MAX = 86_400.0
"""Longest wait for messages, of fronts that bound it: one that wants more is answered after a day."""

ELSEWHERE_S = 0.1
"""Least wait for a broker elsewhere: it tells what it has, and nothing else.

Who left before would get nothing, however much there is; and what was on its way would count a try.
"""
FILTERING_S = 10.0
"""Seconds for which :func:`poll_now` waits where messages have to be filtered first."""

Received: TypeAlias = pa.RecordBatch | TarryError | None
"""Result of a receive: messages (:data:`tarry.api.row_schemas.DELIVERY`), an error, or None.

None: the group was deleted or the front stops, so there is nothing left to wait for; or the consumer is silent
(:attr:`tarry.api.consuming.Subscription.silent`), which has to ask again.
"""


class HasRoom(Protocol):
    """A limit on what is handed out; see :class:`tarry.fronts.kit.unread.Room`."""

    @property
    def is_free(self) -> bool:
        """True if messages may be handed out now. Read right before they are."""
        ...

    def hold(self, size: int) -> None:
        """Count this many bytes as handed out."""
        ...


@dataclass(slots=True, eq=False)
class Waiter:
    """A waiting receive.

    ``on_result`` is called once, on the loop's thread; the waiter has left the queue by then.
    """

    subscription: Subscription
    rows_max: int
    on_result: Callable[[Received], None]
    has_left: Callable[[], bool] = bool
    """Returns whether the receive has ended although it has not been removed from the queue yet."""
    room: HasRoom | None = None
    """Limit for the messages handed to this receive; None: they are limited elsewhere.

    While there is no room, the receives behind this one are served.
    """
    is_full: Callable[[], bool] = bool
    """Returns whether its consumer holds as much as it may.

    Meanwhile the receives behind this one are served. An acknowledgement, which makes room, is news of the group.
    """
    is_patient: bool = False
    """True for a stream, which is never refused for a quota: it gets fewer messages."""
    is_asked: bool = False
    """True if a broker elsewhere was asked on its behalf."""
    was_polled: bool = False
    """True if its subscription has been polled for it, in vain."""
    filtered_until_s: float | None = None
    """The loop's time until which it waits for its identity's quota on filters; None: it does not."""


class _Look(NamedTuple):
    """Result of a look at one waiter."""

    again_s: float | None = None
    """Seconds after which it is to be looked at again; None: when there is news."""
    is_held: bool = False
    """True if it got nothing for a quota of its identity, so that others may get something."""
    is_vain: bool = False
    """True if the group has nothing for those behind it either."""
    is_served: bool = False


class ReceiveQueue:
    """The receives that wait for messages of one group.

    On the loop's thread, except for the group's own callbacks. The queue listens to the group until :meth:`close`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, group: ConsumerGroup, gather_s: float = GATHER_S) -> None:
        """Listen to ``group``.

        ``gather_s``: seconds for which messages gather after all ready ones have been handed out. 0 suits consumers
        that ask again as soon as they have been answered: what comes meanwhile gathers by itself.
        """
        self.group = group
        self._gather_s = gather_s
        self._loop = loop
        self._waiting: dict[Waiter, None] = {}  # in order of arrival
        self._planned = False
        self._asked_in_vain = False
        """True if the group had nothing when it was asked last; False: those that wait were all passed over."""
        self._held_until_s = 0.0
        """The loop's time until which all that wait are held back for quotas: news are for none of them."""
        self._timer: asyncio.TimerHandle | None = None
        self._looks_s = 0.0
        """The loop's time for which the timer is set."""
        self._emptied_s = 0.0
        """The loop's time at which the last ready message was handed out."""
        self._rested_s = 0.0
        """The loop's time until which those that wait are left alone, after a long look in vain."""
        self._stop_listening = group.listen(self._on_news)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def least_wait_s(self) -> float:
        """Seconds for which a receive waits at least, so that the group is asked for it once, and answers."""
        least_s = max(0.0, self._pause_s) + _TIMER_S if self._planned else 0.0
        return least_s + ELSEWHERE_S if self.group.gathers else least_s

    def add(self, waiter: Waiter) -> None:
        """Queue a waiter. Its ``on_result`` may be called before this returns."""
        # Queued before the group is asked: a message that becomes ready afterwards is announced only to queued waiters.
        self._waiting[waiter] = None
        if self._planned:
            return
        if next(iter(self._waiting)) is waiter or (not self._asked_in_vain and self._pause_s > 0):
            self._planned = True
            self._plan()
        elif not self._asked_in_vain:
            self._serve_behind(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter, so that its ``on_result`` is not called any more. No effect if it has left already."""
        was_asked = waiter in self._waiting and waiter.is_asked
        self._waiting.pop(waiter, None)
        if was_asked:
            waiter.subscription.withdraw()
            if self._waiting and not self._planned:
                # A broker in another process has been asked on behalf of the first waiter only.
                self._planned = True
                self._loop.call_soon(self._plan)

    def receive(
        self, subscription: Subscription, rows_max: int, room: HasRoom | None = None, *, is_patient: bool = False
    ) -> asyncio.Future[pa.RecordBatch | None]:
        """Return a future of up to ``rows_max`` messages. Cancel the future to leave the queue.

        The result None means the same as in :data:`Received`. ``is_patient``: see :class:`Waiter`.

        Raises:
            TarryError: when the future is awaited; see :meth:`Subscription.poll`.
        """
        future: asyncio.Future[pa.RecordBatch | None] = self._loop.create_future()

        # A timer may serve the queue between the cancellation and its callback. Messages that were handed out then and
        # given back would have lost a try: `done` as `has_left` prevents it.
        waiter = Waiter(
            subscription, rows_max, partial(_settle, future, self.group), future.done, room, is_patient=is_patient
        )
        future.add_done_callback(lambda _: self.remove(waiter))
        self.add(waiter)
        return future

    def close(self) -> None:
        """Stop serving: every waiting receive ends with None."""
        self._stop_listening()
        self._release_all()

    def _on_news(self) -> None:
        # From any thread, often from the dispatcher's between two messages, so the group is not asked here.
        if self._waiting and not self._planned and (self._loop.time() >= self._held_until_s or self.group.closed):
            self._planned = True
            post(self._loop, self._plan)

    def _plan(self) -> None:
        wait_s = self._pause_s
        if wait_s > 0:
            self._serve_later(wait_s)
        else:
            self._serve()

    @property
    def _pause_s(self) -> float:
        """Seconds until those that wait may be looked at again."""
        return max(self._emptied_s + self._gather_s, self._rested_s) - self._loop.time()

    def _serve_later(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(wait_s, self._serve)
        self._looks_s = self._loop.time() + wait_s

    def _serve(self) -> None:
        self._planned = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._asked_in_vain, self._held_until_s, again_s, all_held, served = False, 0.0, None, True, False
        held: dict[QuotaAccount, HeldBack] = {}
        begun_s = self._loop.time()
        for waiter in list(self._waiting):
            if self.group.closed:
                self._release_all()
                return
            look = self._look_at(waiter, held)
            again_s = _sooner(again_s, look.again_s)
            all_held, served = all_held and look.is_held, served or look.is_served
            if look.is_vain:
                self._asked_in_vain = True
                break
        ended_s = self._loop.time()
        took_s = ended_s - begun_s
        # Thousands that are full or held back, of one peer, must not keep the loop from others at each piece of news.
        self._rested_s = ended_s + REST * took_s if took_s > LONG_S and not served else 0.0
        if again_s is not None:
            again_s = max(again_s, self._rested_s - ended_s)
            self._serve_later(again_s)
            if all_held:
                self._held_until_s = ended_s + again_s

    def _serve_behind(self, waiter: Waiter) -> None:
        """Serve one that has just come behind others that were all passed over, and leave those alone."""
        if self.group.closed:
            self._release_all()
            return
        look = self._look_at(waiter, {})
        self._asked_in_vain = look.is_vain
        if not look.is_held:
            self._held_until_s = 0.0  # news are for this one
        if look.again_s is not None and (self._timer is None or self._looks_s > self._loop.time() + look.again_s):
            self._serve_later(look.again_s)

    def _look_at(self, waiter: Waiter, held: dict[QuotaAccount, HeldBack]) -> _Look:
        """Hand messages to a waiter, if it may get some, and there are some.

        ``held``: accounts whose quota was found used up in this pass. Others of them are not asked for: a poll costs
        more than all else here.
        """
        if waiter not in self._waiting or waiter.has_left() or waiter.is_full():
            return _Look()  # another's callback removed it, or it was cancelled and its own callback is yet to run
        room, account = waiter.room, waiter.subscription.account
        if room is not None and not room.is_free:
            return _Look(CROWDED_S)
        if waiter.subscription.silent:
            # It would be handed nothing, and hold up those behind it.
            del self._waiting[waiter]
            waiter.on_result(None)
            return _Look()
        if account is not None and account in held and waiter.was_polled:
            return self._held_back(waiter, account, held[account])
        received: Received
        try:
            received, wait_s = waiter.subscription.poll(waiter.rows_max)
        except TarryError as error:
            received, wait_s = error, None
        if received is None:
            return self._on_nothing(waiter, wait_s, held)
        if isinstance(received, pa.RecordBatch) and received.num_rows < waiter.rows_max and not self.group.gathers:
            self._emptied_s = self._loop.time()
        del self._waiting[waiter]
        if room is not None and isinstance(received, pa.RecordBatch):
            room.hold(received.nbytes)
        waiter.on_result(received)
        return _Look(is_served=True)

    def _on_nothing(self, waiter: Waiter, wait_s: float | None, held: dict[QuotaAccount, HeldBack]) -> _Look:
        """Return what a poll without messages means for others.

        They may get some if it alone is held back for a quota. Behind a gateway only the broker knows that.
        """
        waiter.was_polled, waiter.is_asked = True, self.group.gathers
        account = waiter.subscription.account
        if account is None or not account.limits_consuming:
            return _Look(wait_s, is_vain=True)
        found = waiter.subscription.held_back
        if found is None:
            waiter.filtered_until_s = None
            # Behind a gateway each is asked for, and told by itself.
            return _Look(wait_s, is_vain=not self.group.gathers)
        held[account] = found
        return self._held_back(waiter, account, found)

    def _held_back(self, waiter: Waiter, account: QuotaAccount, held: HeldBack) -> _Look:
        if held.quota == FILTERING:
            return _Look(self._delay(waiter, account, held), is_held=True)
        waiter.filtered_until_s = None
        return _Look(min(held.wait_s, DELAY_S_MAX), is_held=True)  # quotas may be raised meanwhile

    def _delay(self, waiter: Waiter, account: QuotaAccount, held: HeldBack) -> float | None:
        """Delay a receive whose filter takes more than its identity may use.

        Returns in how many seconds to look again; None: it was refused.
        """
        if waiter.is_patient:
            return min(held.wait_s, DELAY_S_MAX)
        now_s = self._loop.time()
        if waiter.filtered_until_s is None:
            waiter.filtered_until_s = now_s + DELAY_S_MAX
        if now_s < waiter.filtered_until_s:
            return min(held.wait_s, waiter.filtered_until_s - now_s)
        del self._waiting[waiter]
        waiter.on_result(account.refusal(held))
        return None

    def _release_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.on_result(None)


def _sooner(one_s: float | None, other_s: float | None) -> float | None:
    return min((each for each in (one_s, other_s) if each is not None), default=None)


def leases_of(batch: pa.RecordBatch) -> tuple[Int64s, Int64s]:
    """Return the leases and the offsets to settle these rows with, as two arrays with one entry a row."""
    leases, offsets = (batch.column(name).to_numpy() for name in ("lease", "offset"))
    return leases, offsets


def rows_of(received: Received) -> pa.RecordBatch | None:
    """Return the messages that were received; None: there are none."""
    return received if isinstance(received, pa.RecordBatch) and received.num_rows else None


def give_back(group: ConsumerGroup, received: Received) -> None:
    """Give back messages that no client took, so that other consumers get them at once."""
    rows = rows_of(received)
    if rows is not None:
        group.nack(*leases_of(rows), 0)


def lease_ms_of(group: ConsumerGroup, broker: AnyBroker, asked_ms: int | None = None) -> int:
    """Return a consumer's lease in milliseconds: as asked, or as the group says, or the broker."""
    return asked_ms or group.settings.lease_ms or broker.config.lease_ms


async def receive_within(
    queue: ReceiveQueue,
    subscription: Subscription,
    rows_max: int,
    wait_s: float,
    room: HasRoom | None = None,
    until: asyncio.Future[Any] | None = None,
) -> pa.RecordBatch | None:
    """Wait in a queue for up to ``wait_s`` seconds, or until ``until`` is done; None: there is no message.

    Who is cancelled has given back what was handed out in that moment.

    Raises:
        QuotaExceededError: see :func:`check_held_back`.
        TarryError: see :meth:`Subscription.poll`.
    """
    received = queue.receive(subscription, rows_max, room)
    ends = (received,) if until is None else (received, until)
    try:
        await wait_or_rest(ends, subscription, max(wait_s, queue.least_wait_s))
        if received.done():
            return received.result()
        if until is None or not until.done():
            check_held_back(subscription, wait_s)
        return None
    except asyncio.CancelledError:
        if received.done() and not received.cancelled() and received.exception() is None:
            give_back(queue.group, received.result())
        raise
    finally:
        received.cancel()


async def poll_now(
    loop: asyncio.AbstractEventLoop,
    subscription: Subscription,
    rows_max: int,
    timeout_s: float,
    *,
    waits_later: bool = False,
) -> pa.RecordBatch | None:
    """Return the messages that are ready now, without leaving a thread waiting.

    Where messages must first be filtered in a thread or skipped, wait up to ``timeout_s`` seconds for that.
    ``waits_later``: the caller waits if there are none, and so it does for a quota.
    None: there is no message, or the time was not enough.

    Raises:
        QuotaExceededError: a quota of its identity was used up for as long as a request is delayed.
        TarryError: see :meth:`Subscription.poll`.
    """
    group = subscription.group
    if group.gathers:
        return await _poll_elsewhere(loop, subscription, rows_max)
    batch, is_final = poll_once(subscription, rows_max)
    if is_final:
        return batch
    news = asyncio.Event()
    stop_listening = group.listen(lambda: post(loop, news.set))
    end_s, refused_s = (loop.time() + each for each in (timeout_s, DELAY_S_MAX))
    try:
        while (left_s := end_s - loop.time()) > 0:
            news.clear()
            batch, is_final = poll_once(subscription, rows_max)
            if is_final:
                return batch
            held, account = subscription.held_back, subscription.account
            if held is not None and waits_later:
                return None
            if held is not None and account is not None:
                # Not empty: there may be messages, and who asks for all that there are would end.
                if (delay_s := refused_s - loop.time()) <= 0:
                    raise account.refusal(held)
                await asyncio.sleep(min(held.wait_s, delay_s))
            elif subscription.filters_first:
                async with asyncio.timeout(left_s):
                    await news.wait()
            else:
                await asyncio.sleep(0)  # there are more messages to skip; other work on the loop goes first
    except TimeoutError:
        pass
    finally:
        stop_listening()
    return None


def poll_once(subscription: Subscription, rows_max: int) -> tuple[pa.RecordBatch | None, bool]:
    """Return the result of a poll, and whether it stands.

    It does not while messages have to be filtered or skipped first, or a quota is used up.

    Raises:
        TarryError: see :meth:`Subscription.poll`.
    """
    batch, again_s = subscription.poll(rows_max)
    if batch is not None:
        return batch, True
    return None, not (subscription.filters_first or again_s == 0 or subscription.held_back is not None)


async def _poll_elsewhere(
    loop: asyncio.AbstractEventLoop, subscription: Subscription, rows_max: int
) -> pa.RecordBatch | None:
    polled: asyncio.Future[pa.RecordBatch | None] = loop.create_future()
    cast(DistantSubscription, subscription).poll_now(rows_max, partial(_settle, polled, subscription.group))
    return await polled


def _settle(future: asyncio.Future[pa.RecordBatch | None], group: ConsumerGroup, received: Received) -> None:
    if future.done():
        give_back(group, received)  # it was cancelled: the client has left
    else:
        settle_future(future, received)


async def wait_for_rows(loop: asyncio.AbstractEventLoop, group: ConsumerGroup, offset: int, wait_s: float) -> None:
    """Wait until the queue of the group's topic ends elsewhere than at ``offset``.

    Return also when the group was closed, or after ``wait_s`` seconds. For consumers that keep their own offsets.
    No thread is used meanwhile.
    """
    news = asyncio.Event()
    # Listen before the first check, so that no change after it is missed.
    stop_listening = group.listen(lambda: post(loop, news.set))
    try:
        async with asyncio.timeout(wait_s):
            while group.queue_ends[1] == offset and not group.closed:
                await news.wait()
                news.clear()
    except TimeoutError:
        pass
    finally:
        stop_listening()
