"""Messages that a consumer holds, so that no lease of them ends by itself.

They are extended while they are worked on, given back where the work would begin too late, and asked for as fast as
they are worked through.

Iterators take messages out of batches; the settler's thread looks at what they leave (:meth:`Holding.tend`). Both have
the lock when a batch is begun or taken back, not for each message: to take one out of a list's iterator is one step,
and so is to take all that is left.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator

from tarry.base.errors import StaleLeaseError
from tarry.client.delivery import Delivery
from tarry.client.delivery_batch import DeliveryBatch
from tarry.client.settling import Settler
from tarry.client.stream_op import StreamOp

log = logging.getLogger(__name__)

START_ROWS = 4
"""Messages that may be here before the consumer's speed is known."""
AHEAD_S = 0.5
"""Seconds of work that may wait here.

That is far more than the way to the broker and back, and far less than others may have to wait for it.
"""
JUDGE_S = 0.1
"""Seconds of work that show the consumer's speed; less shows only that it is faster than was thought."""
TEND_S = 0.25
HELD_S_MAX = 12 * 3600.0
"""A handler that has one batch for longer hangs: its leases end."""
PUSH_SHARE = 4
"""Acks are sent at once when a share of 1/4 of the window has been worked through."""
LEFT = "its consumer's loop was left before it was settled"
GONE_S = -math.inf


class Hand:
    """State of one iterator."""

    __slots__ = ("batch", "since_s", "unstarted")

    def __init__(self) -> None:
        self.batch: DeliveryBatch | None = None
        self.since_s = 0.0
        self.unstarted = 0


class Holding:
    """Of one consumer, over all of its streams. Any thread."""

    def __init__(
        self,
        prefetch: int,
        who: Callable[[], object] = threading.get_ident,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """Hold nothing yet.

        Args:
            prefetch: the most messages that may be here.
            who: names the thread or task that works on a message.
            on_lost: called when messages in work may have been lost, in any thread, with the lock: it must be quick.
        """
        self.window = min(START_ROWS, prefetch)
        """Unsettled messages that the broker may hand to it."""
        self._prefetch = prefetch
        self.on_lost = on_lost
        # Reentrant: a consumer in a circle of references may be collected by whoever is in here.
        self._lock = threading.RLock()
        self._work_ended = threading.Condition(self._lock)
        self._who = who
        self._workers: dict[object, int] = {}
        """Messages in ``with`` blocks, by who is in them."""
        self._settler: Settler | None = None
        self._sent: Callable[[], int] = int
        self._lease_s = math.inf
        self._batches: dict[DeliveryBatch, None] = {}
        """In the order of arrival: what has messages that nobody took yet, or is in somebody's hand."""
        self._hands: set[Hand] = set()
        self._iterators = 0
        self._worked_rows = 0
        """Since acks were last sent for that."""
        self._left: list[tuple[DeliveryBatch, Delivery | None]] = []
        """Messages that iterators had in hand when they were closed."""
        self._resting = True
        self._ended = False
        self._target = self.window
        self._rows, self._busy_s = 0, 0.0
        self._waiting = 0
        self._tended_s = 0.0
        self._is_leaving = False
        """The stream ends when what is in work is settled: it brings nothing more."""
        self._suspect_after: int | None = None
        """Number of a poll: what comes is suspect until the broker answers a later one."""
        self._came_rows = 0
        """Without those that were lost or given back."""
        self._mark = (0.0, 0)

    # -- the feed's --------------------------------------------------------------------------------------------------

    def begin_stream(self, settler: Settler, lease_ms: int, sent: Callable[[], int]) -> None:
        """Begin with a stream on which so many polls were ``sent``."""
        with self._lock:
            self._settler, self._lease_s, self._sent = settler, lease_ms / 1000, sent
            self._resting, self._suspect_after, self._is_leaving = True, None, False

    def leave_stream(self) -> None:
        """Give back what nobody has begun, and take no more: the broker stops, and waits for what is in work."""
        with self._lock:
            self._resize(0)
            self._is_leaving = True
            self._return_down_to(0)

    @property
    def is_at_work(self) -> bool:
        """True if somebody has messages in hand; after :meth:`leave_stream`. Any thread."""
        return bool(self._batches)

    def end_stream(self) -> None:
        """Forget the stream: the broker hands out again what was not settled."""
        with self._lock:
            for batch in self._batches:
                batch.until_s = GONE_S
            had_some = bool(self._batches)
            self._batches.clear()
            self._left.clear()
            self._settler = None
            self._work_ended.notify_all()  # acks of it would be void
            self._target = max(1, self._target)
            self.window = min(self._prefetch, max(START_ROWS, self._target, self._floor))
            if had_some:
                self.on_lost()

    def add(self, batch: DeliveryBatch) -> None:
        """Add a batch that has come."""
        now = time.monotonic()
        batch.keeper = self
        batch.came_s, batch.extended_s, batch.until_s = now, now, self._until_s(now)
        with self._lock:
            self._look_for_gap(now)
            if self._ended or self._is_leaving or self._suspect_after is not None:
                batch.until_s = GONE_S
                batch.settler.order(StreamOp.RETURN, 0, batch, None)
                return
            self._came_rows += len(batch)
            self._hold(batch)

    def _hold(self, batch: DeliveryBatch) -> None:
        self._batches[batch] = None
        resting, self._resting = self._resting, False
        if resting:
            self._tended_s = time.monotonic()
        if resting and self._settler is not None:
            self._settler.wake()

    def _look_for_gap(self, now: float) -> None:
        # The process stood still: what answers a poll from before that may have been handed out long ago.
        if not self._resting and now - self._tended_s > TEND_S + self._lease_s / 2:
            self._suspect_after = self._sent()

    def on_answered(self, number: int) -> None:
        """Note that the broker has answered the stream's polls up to this one."""
        if self._suspect_after is not None:
            with self._lock:
                if self._suspect_after is not None and number > self._suspect_after:
                    self._suspect_after = None

    def _until_s(self, now: float) -> float:
        # The broker's lease began before the batch came here.
        return now + self._lease_s - min(1.0, self._lease_s / 10)

    # -- iterators' --------------------------------------------------------------------------------------------------

    def begin(self) -> Hand:
        """Somebody iterates, until :meth:`leave`."""
        # Of a loop that was left, and is begun again: what it was at has failed, or it would have been settled.
        self.fail_left(LEFT)
        with self._lock:
            self._iterators += 1
            if self._floor > self.window and not self._ended:
                self._resize(self._floor)
                self.window = self._floor  # also where no stream has begun
        return Hand()

    @property
    def _floor(self) -> int:
        """Messages that may be here without work ahead: one for each iterator, where there are several.

        Unsettled messages count, so with less the others would have nothing while one works for long.
        """
        return min(self._prefetch, self._iterators) if self._iterators > 1 else 0

    def rests(self) -> list[DeliveryBatch]:
        """Return the batches that iterators are at, and have not taken all of, for one that begins."""
        with self._lock:
            return [hand.batch for hand in self._hands if hand.batch is not None and hand.batch.unstarted]

    def is_for_many(self, batch: DeliveryBatch) -> bool:
        """Return whether others iterate, too, and the batch has enough for them.

        Ask after :meth:`take`: an iterator that begins later finds the batch among :meth:`rests`, and one that began
        before is counted here.
        """
        return self._iterators > 1 and batch.unstarted > 1

    def take(self, hand: Hand, batch: DeliveryBatch, *, whole: bool = False) -> Iterator[Delivery] | None:
        """Take what nobody took of a batch yet; others may take from it, too.

        ``whole``: all of it, or None where some was taken, or its lease is over.
        """
        with self._lock:
            unstarted = batch.unstarted
            if whole and time.monotonic() >= batch.until_s:
                self.drop(batch)
                return None
            if whole and unstarted < len(batch):
                return None
            if whole:
                batch.take_rest()
            rest = batch.begin()
            hand.batch, hand.since_s, hand.unstarted = batch, time.monotonic(), unstarted
            self._hands.add(hand)
        return rest

    def done(self, hand: Hand) -> bool:
        """Note that the iterator is asked for the next message.

        Return True if so much was worked through that acks are to be sent at once: the broker may be waiting for room
        in the window. Otherwise the settler's thread does it.
        """
        with self._lock:
            batch, hand.batch = hand.batch, None
            if batch is None:
                return False
            rows = hand.unstarted - batch.unstarted
            self._hands.discard(hand)
            self._forget_done(batch)
            self._on_work(rows, time.monotonic() - hand.since_s)
            self._worked_rows += rows
            is_much = self._worked_rows >= max(1, self.window // PUSH_SHARE)
            if is_much:
                self._worked_rows = 0
            return is_much

    def leave(self, hand: Hand, message: Delivery | None) -> DeliveryBatch | None:
        """Close the iterator; ``message`` (None: its batch) is the last it gave, unless asked for the next.

        Return the batch if something is left in it for the next iterator.
        """
        with self._lock:
            self._iterators -= 1
            batch, hand.batch = hand.batch, None
            self._hands.discard(hand)
            if batch is None:
                return None
            self._left.append((batch, message))
            self._forget_done(batch)
            return batch if batch.unstarted else None

    def begin_wait(self) -> bool:
        """Somebody asks for messages; whether the broker has to hear of that."""
        with self._lock:
            self._waiting += 1
            if self.window:
                return False
            self._resize(max(1, self._target))
            return True

    def end_wait(self) -> None:
        """Somebody has got some, or gave up."""
        with self._lock:
            self._waiting -= 1

    def drop(self, batch: DeliveryBatch) -> None:
        """Its lease is over, or its connection: others get what nobody took of it here."""
        with self._lock:
            batch.until_s = GONE_S
            self._take_rest(batch)
            self._forget_done(batch)
            self.on_lost()

    # -- what keeps a message of a batch in work: see Delivery.__enter__ ---------------------------------------------

    def enter(self, batch: DeliveryBatch) -> None:
        """Work at a message begins.

        Raises:
            StaleLeaseError: others have it by now, or will: a loop that gives its messages to a pool has ended, say.
        """
        with self._lock:
            is_over = self._ended or batch.settler.closed or time.monotonic() >= batch.until_s
            # A loop that is at it has just been given it: to end the loop for a moment's bad luck helps nobody.
            if is_over and all(hand.batch is not batch for hand in self._hands):
                raise StaleLeaseError(
                    "the message is not this consumer's any more, and comes again: its lease is over, or its consumer "
                    "has ended; allowed: to begin work while the consumer is there, as in a block "
                    "`with client.consume(…) as consumer:` around loop and pool"
                )
            batch.busy += 1
            me = self._who()
            self._workers[me] = self._workers.get(me, 0) + 1
            if not is_over:
                self._hold(batch)
                # Not left to the thread that tends, which may come when the lease is over.
                settler = self._settler
                if settler is batch.settler and self._extend_if_old(settler, batch, time.monotonic()):
                    settler.hurry()

    def leave_work(self, batch: DeliveryBatch) -> None:
        """Note that the work has ended."""
        with self._lock:
            batch.busy -= 1
            me = self._who()
            self._workers[me] = self._workers.get(me, 0) - 1
            if self._workers[me] <= 0:
                del self._workers[me]
            self._forget_done(batch)
            if self._ended:
                self._work_ended.notify_all()

    # -- giving up ---------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Let no work begin from now on. Takes no lock: for who may have it already."""
        self._ended = True

    def give_back(self) -> None:
        """At the end: give back all that nobody has taken."""
        with self._lock:
            self._ended = True
            self._resize(0)  # or it would come to this consumer again
            self._return_down_to(0)

    def wait_for_work(self, closer: object, timeout_s: float) -> None:
        """Wait, after :meth:`give_back`, for others than ``closer`` to end their work; after a while, tell.

        Their acks would be lost with the stream. Leases are extended meanwhile. ``closer``: as ``who`` names it.
        """
        with self._lock:
            if not self._work_ended.wait_for(lambda: self._worked_on(closer) <= 0, timeout_s):
                log.warning(
                    "closing, though %d messages are still worked on after %g s: acks of them are lost from now on, "
                    "and they come again",
                    self._worked_on(closer),
                    timeout_s,
                )

    def _worked_on(self, closer: object) -> int:
        return sum(batch.busy for batch in self._batches) - self._workers.get(closer, 0)

    def fail_left(self, reason: str) -> None:
        """Fail what iterators had when they were closed, and is not settled."""
        with self._lock:
            left, self._left = self._left, []
        for batch, message in left:
            batch.settler.order(StreamOp.FAIL, -1, batch, None if message is None else message.row, reason)

    def fail(self, reason: str) -> None:
        """All that was taken and is not settled has failed; what was not taken is given back."""
        self.give_back()
        self.fail_left(reason)
        with self._lock:
            in_hand = {hand.batch: None for hand in self._hands if hand.batch is not None}
        for batch in in_hand:
            batch.settler.order(StreamOp.FAIL, -1, batch, None, reason)

    # -- the settler's thread ----------------------------------------------------------------------------------------

    def tend(self) -> float | None:
        """Extend what is held, and give back what waits for too long.

        Return the seconds until the next look (None: once there is something).
        """
        with self._lock:
            settler = self._settler
            for batch in list(self._batches):
                self._forget_done(batch)
            if settler is None or not self._batches:
                self._resting = True
                return None
            now = time.monotonic()
            self._look_for_gap(now)
            self._tended_s = now
            for batch in list(self._batches):
                self._tend(settler, batch, now)
            self._judge(now)
            return max(0.005, min(TEND_S, self._lease_s / 6))

    def _tend(self, settler: Settler, batch: DeliveryBatch, now: float) -> None:
        if now >= batch.until_s:
            # The process had stood still: who takes the message now would be the second.
            self.drop(batch)
        else:
            self._extend_if_old(settler, batch, now)

    def _extend_if_old(self, settler: Settler, batch: DeliveryBatch, now: float) -> bool:
        """Extend its lease, a third into it; whether that was done."""
        if now - batch.extended_s < self._lease_s / 3 or now - batch.came_s >= HELD_S_MAX:
            return False
        settler.extend(batch, round(self._lease_s * 1000))
        batch.extended_s, batch.until_s = now, self._until_s(now)
        return True

    def _forget_done(self, batch: DeliveryBatch) -> None:
        is_done = not batch.unstarted and not batch.busy and all(hand.batch is not batch for hand in self._hands)
        if is_done:
            self._batches.pop(batch, None)

    def _take_rest(self, batch: DeliveryBatch) -> list[int]:
        """Take what nobody took, for nobody here to have; the rows."""
        rest = batch.take_rest()
        self._came_rows -= len(rest)
        for hand in self._hands:
            if hand.batch is batch:
                hand.unstarted -= len(rest)  # that was not work
        return rest

    # -- the window --------------------------------------------------------------------------------------------------

    def _on_work(self, rows: int, seconds: float) -> None:
        self._rows += rows
        self._busy_s += seconds
        bound = max(self._bound(self._rows, self._busy_s), self._floor)
        if self._busy_s >= JUDGE_S or bound >= 2 * self.window:
            self._target, self._rows, self._busy_s = max(1, bound), 0, 0.0
            if bound >= 2 * self.window or 2 * bound <= self.window or bound == self._prefetch:
                self._resize(self._target)

    def _bound(self, rows: int, seconds: float) -> int:
        """Return the number of messages that are work for :data:`AHEAD_S`, as ``rows`` took ``seconds``."""
        ahead_s = min(AHEAD_S, self._lease_s / 4)
        return min(self._prefetch, math.ceil(ahead_s * rows / max(seconds, 1e-9)))

    def _judge(self, now: float) -> None:
        """Shrink the window if more work waits than was thought: a handler is slow, or nobody iterates."""
        unstarted = sum(batch.unstarted for batch in self._batches)
        taken = self._came_rows - unstarted
        since_s, before = self._mark
        if not unstarted or since_s == 0.0:
            self._mark = (now, taken)
            return
        if now - since_s < min(AHEAD_S, self._lease_s / 4):
            return
        self._mark = (now, taken)
        # Who waits at this moment must be sent something.
        bound = max(self._bound(max(0, taken - before), now - since_s), min(1, self._waiting))
        if unstarted > 2 * bound:
            self._rows, self._busy_s, self._target = 0, 0.0, max(1, bound)
            self._resize(max(bound, self._floor))
            self._return_down_to(bound)

    def _resize(self, window: int) -> None:
        if (self._ended or self._is_leaving) and window:
            return  # a loop that goes on while the consumer is closed, or the broker stops, gets no more
        if self._settler is not None and window != self.window:
            self.window = window
            self._settler.resize(window)

    def _return_down_to(self, keep: int) -> None:
        """Give back untaken messages, the last first, in whole batches, until at most ``keep`` wait."""
        unstarted = sum(batch.unstarted for batch in self._batches)
        for batch in reversed(list(self._batches)):
            if unstarted <= keep:
                return
            rest = self._take_rest(batch)
            unstarted -= len(rest)
            if rest:
                batch.settler.order(StreamOp.RETURN, 0, batch, rest)
            self._forget_done(batch)
