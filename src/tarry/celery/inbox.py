"""Messages that consumers received, for a worker to take when it has room.

A thread for each place iterates over a consumer, which keeps leases and connects again. It asks for the next message
only while the worker has room: what it does not come to stays with the broker, for other workers to have.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tarry.base.delay import Delay
from tarry.base.errors import InvalidArgumentError, StaleLeaseError, TarryError
from tarry.celery.places import QueuePlace
from tarry.client.delivery import Delivery
from tarry.client.sync import Client
from tarry.client.way import Consumes

log = logging.getLogger(__name__)

HELD_S = 0.5
"""A message for which there is no room after all goes back after so many seconds."""
YIELD_S, YIELD_S_MAX = 0.005, 0.1
"""For how long a lower priority lets a higher one give what it has."""
WORK_S = 1e6
"""A worker that stops waits for its tasks, however long they take; then it closes its channel."""
END_S = 10.0
"""Longest wait of a channel's end for answers to what was settled."""


class Received(NamedTuple):
    """A message in work: its lease is extended until it is settled."""

    queue: str
    delivery: Delivery


class Wakeup:
    """A descriptor that can be read once something was noted."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._is_closed = False

    def fileno(self) -> int:
        return self._fd

    def note(self) -> None:
        with self._lock:
            if not self._is_closed:
                os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until something was noted, for ``timeout_s`` seconds; return whether it was."""
        return bool(select.select([self._fd], [], [], timeout_s)[0])

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._fd)


class Inbox:
    """Messages of a channel's queues. ``room()``: how many more its worker takes; None: any number.

    ``wakeup`` is noted when there is a message to take.
    """

    def __init__(self, client: Client, wakeup: Wakeup, room: Callable[[], int | None]) -> None:
        self._client, self._wakeup, self._room = client, wakeup, room
        self._changed = threading.Condition()
        self._waiting: dict[int, deque[Received]] = {}
        """By priority."""
        self._streams: dict[str, list[_Stream]] = {}
        self._errors: deque[TarryError] = deque()
        self._ending: list[threading.Thread] = []

    def open(self, queue: str, places: list[QueuePlace], lease: Delay | None) -> None:
        """Consume a queue from now on."""
        streams = self._streams.setdefault(queue, [])
        for place in places:
            consumer = self._client.consume(place.topic, group=place.group, lease=lease)
            streams.append(_Stream(self, queue, place, consumer))

    def close(self, queue: str) -> None:
        """Consume a queue no longer; what was taken of it can still be settled."""
        for stream in self._streams.pop(queue, []):
            self._ending.append(stream.stop())
        with self._changed:
            given_back = [each for row in self._waiting.values() for each in row if each.queue == queue]
            for row in self._waiting.values():
                for each in given_back:
                    with suppress(ValueError):
                        row.remove(each)
            self._changed.notify_all()
        for each in given_back:
            give_back(each.delivery)

    def take(self) -> Received | None:
        """Take the message that is first; None: there is none, or no room for it.

        Raises:
            TarryError: a queue cannot be consumed any more; says why.
        """
        with self._changed:
            if self._errors:
                raise self._errors.popleft()
            room = self._room()
            if room is not None and room <= 0:
                return None
            for priority in sorted(self._waiting, reverse=True):
                if row := self._waiting[priority]:
                    received = row.popleft()
                    self._changed.notify_all()
                    return received
            return None

    def on_room(self) -> None:
        """Note that the worker may have room again."""
        with self._changed:
            self._changed.notify_all()
            if any(self._waiting.values()):
                self._wakeup.note()

    def end(self) -> None:
        """Wait until what was settled of queues that were closed is durable."""
        until_s = time.monotonic() + END_S
        for thread in self._ending:
            thread.join(max(0.0, until_s - time.monotonic()))

    # -- the threads of streams ----------------------------------------------------------------------------------------

    def wait_for_room(self, stream: _Stream) -> bool:
        """Wait until there is room for another message; return False once the stream has ended."""

        with self._changed:
            self._changed.wait_for(lambda: stream.is_stopped or self._has_room())
            # Those of a higher priority first: one that is asked for its next and gives none has none.
            until_s = time.monotonic() + YIELD_S_MAX
            while not stream.is_stopped and self._may_give_more(stream) and time.monotonic() < until_s:
                self._changed.wait(YIELD_S)
                self._changed.wait_for(lambda: stream.is_stopped or self._has_room())
            stream.asked_s = time.monotonic()
        return not stream.is_stopped

    def _has_room(self) -> bool:
        room = self._room()
        return room is None or room > sum(map(len, self._waiting.values()))

    def _may_give_more(self, stream: _Stream) -> bool:
        """Return whether a place of the same queue, of a higher priority, may have a message at hand."""
        empty_s = time.monotonic() - YIELD_S
        return any(
            other.place.priority > stream.place.priority and (other.asked_s is None or other.asked_s > empty_s)
            for other in self._streams.get(stream.queue, ())
        )

    def put(self, stream: _Stream, received: Received) -> None:
        with self._changed:
            stream.asked_s = None
            if stream.is_stopped:
                give_back(received.delivery)
                return
            row = self._waiting.setdefault(stream.place.priority, deque())
            row.append(received)
            self._wakeup.note()
            # Where several places had room for the same one, all but one would be held for nobody.
            room = self._room()
            if room is None or room > 0:
                return
            if not self._changed.wait_for(lambda: received not in row or stream.is_stopped, HELD_S):
                row.remove(received)
                give_back(received.delivery)

    def fail(self, error: TarryError) -> None:
        with self._changed:
            self._errors.append(error)
            self._wakeup.note()


class _Stream:
    """A place that is consumed, by a thread of its own."""

    def __init__(self, inbox: Inbox, queue: str, place: QueuePlace, consumer: Consumes) -> None:
        self.queue, self.place, self.is_stopped = queue, place, False
        self.asked_s: float | None = None
        """Since when it waits for its next message; None: it has one, or waits for room."""
        self._inbox, self._consumer = inbox, consumer
        self._thread = threading.Thread(target=self._run, name=f"tarry-celery {queue}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            messages = iter(self._consumer)
            while self._inbox.wait_for_room(self):
                if (delivery := next(messages, None)) is None:
                    return
                try:
                    delivery.__enter__()  # until it is settled: see settle and give_back
                except StaleLeaseError:
                    continue
                self._inbox.put(self, Received(self.queue, delivery))
        except TarryError as error:
            if not self.is_stopped:
                self._inbox.fail(error)

    def stop(self) -> threading.Thread:
        """End, in a thread that is returned: it ends once all that is in work was settled."""
        self.is_stopped = True
        self._inbox.on_room()
        ending = threading.Thread(target=self._consumer.close, args=[WORK_S], name="tarry-celery end", daemon=True)
        ending.start()
        return ending


def settle(delivery: Delivery) -> None:
    """Acknowledge a message in work, if it was not given back before."""
    delivery.__exit__(None, None, None)


def refuse(delivery: Delivery, reason: str) -> None:
    """Give a message in work back, for another try after the group's back-off."""
    delivery.nack(reason=reason)
    delivery.__exit__(None, None, None)


def give_back(delivery: Delivery) -> None:
    """Give a message in work back at once, without a try being counted: nobody has looked at it."""
    try:
        delivery.release()
    except InvalidArgumentError:  # of a message that was asked for (basic_get), and not consumed
        delivery.nack(delay=0)
    delivery.__exit__(None, None, None)


def bury(delivery: Delivery, reason: str) -> None:
    """Make a message in work a dead letter."""
    with suppress(InvalidArgumentError):  # of one that was asked for: it is dropped
        delivery.reject(reason=reason)
    delivery.__exit__(None, None, None)
