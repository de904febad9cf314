"""Cancelling and rescheduling on request: find the message, decide, wait until that is durable.

Reading (the store, for a message in it) happens in the caller's thread. The intake's writer decides afterwards whether
a message is pending, so it does not matter how long the reading took.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from tarry.api import operations as ops
from tarry.api.bounds import KEY
from tarry.api.local import CheckTopic, any_topic
from tarry.api.outcome import Outcome, Rescheduled
from tarry.base.clock import Clock
from tarry.base.errors import ForbiddenError, ForgedHandleError, InvalidArgumentError, StaleCommitError
from tarry.base.waiting import answer_of
from tarry.broker.commands.cancel import CancelCommand, CancelTarget
from tarry.broker.commands.move import Move
from tarry.broker.commands.write_batch import Decisions
from tarry.broker.queries.messages import MessageFinder, column
from tarry.broker.scheduling import Scheduling
from tarry.intake import Command
from tarry.message import handle
from tarry.message.bulk import SEQ_MIN
from tarry.message.receipt import Receipt, id_of
from tarry.message.schema import SCHEMA, UNNUMBERED
from tarry.message.topics import INTERNAL_TOPIC, check_topic, is_internal
from tarry.names import NameEntry, Registry, name_of_key, name_of_series
from tarry.repeat import following, read_state, state_json

_NO_SEQ = SEQ_MIN - 1
"""Number that no message has: those of producers are far below, those of bulk jobs above."""
TARGETS_MAX = 4096
"""Messages cancelled in one write: producers wait while it is decided."""


@dataclass(eq=False)
class Changes:
    """Cancels, reschedules and replaces messages. Any thread.

    ``confirm()`` is called before an outcome that no commit says, since nothing was found: it returns when another
    owner of the log cannot have known better. Raises OwnershipLostError.
    """

    _registry: Registry
    _finder: MessageFinder
    _decisions: Decisions
    _scheduling: Scheduling
    _clock: Clock
    _secret: bytes
    _confirm: Callable[[], None]

    def cancel(self, request: ops.Cancel, check: CheckTopic = any_topic) -> list[Outcome]:
        """Cancel messages by handle; return an outcome for each, durable.

        ``check`` may refuse the topics of the messages, before any is cancelled. To whom they are forbidden, they are
        as unknown as a handle of nothing.

        Raises:
            InvalidArgumentError, ForgedHandleError: names the first bad handle; nothing was cancelled.
            InvalidArgumentError: a message is of a topic of Tarry's own; nothing was cancelled.
            OverloadedError, DiskFullError: not now; of more than 4,096, some were cancelled.
        """
        handles = request.handles
        entries = [self._entry(text, place if len(handles) > 1 else None) for place, text in enumerate(handles)]
        series = self._registry.get([name_of_series(e.seq) for e in entries])
        # All at once: if many handles are random, most row groups of the store contain some of the messages.
        rows = self._finder.find([s or e for s, e in zip(series, entries, strict=True)])
        targets = []
        for entry, current in zip(entries, series, strict=True):
            topic = column(rows, (current or entry).seq, "topic")
            place = entry
            if topic is not None and not _may_change(str(topic), check):
                place, topic = _nowhere(entry), None
            # Without a topic there is nothing that could be cancelled: the outcome alone is told.
            targets.append(CancelTarget(place.seq, place.due_ms, None if topic is None else str(topic)))
        return self._cancelled(targets)

    def discard_placed(self, seq: int, due_ms: int, topic: str) -> bool:
        """Cancel one message of a topic by its place, durably; return False if it is not pending.

        The caller has found the message. If it may have been handed out before a crash, this acknowledges it.
        """
        make = partial(CancelCommand, [CancelTarget(seq, due_ms, topic)], handed_too=True)
        [outcome] = self._carry_out(make)
        return bool(outcome is Outcome.DONE)

    def cancel_keys(self, request: ops.CancelKeys) -> list[Outcome]:
        """Cancel messages by key; return an outcome for each key, durable.

        The outcome is "unknown" if no message of that key is remembered.
        """
        topic, keys = request.topic, request.keys
        entries = self._keyed(topic, keys)
        targets = [
            CancelTarget(entry.seq, entry.due_ms, topic, name_of_key(topic, key))
            for key, entry in zip(keys, entries, strict=True)
            if entry is not None
        ]
        outcomes = iter(self._cancelled(targets))
        if None in entries:
            self._confirm()
        return [Outcome.UNKNOWN if entry is None else next(outcomes) for entry in entries]

    def _cancelled(self, targets: list[CancelTarget]) -> list[Outcome]:
        outcomes = self._withdraw(targets)
        # What may have been handed out before a crash counts as delivered. But if others of its series come after it,
        # it is they that were to be cancelled.
        places = [place for place, outcome in enumerate(outcomes) if outcome is Outcome.DELIVERED]
        places = self._going_on(targets, places)
        ended = self._withdraw([targets[place] for place in places], handed_too=True)
        for place, outcome in zip(places, ended, strict=True):
            outcomes[place] = outcome
        return outcomes

    def _withdraw(self, targets: list[CancelTarget], *, handed_too: bool = False) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for start in range(0, len(targets), TARGETS_MAX):
            part = targets[start : start + TARGETS_MAX]
            outcomes += self._carry_out(partial(CancelCommand, part, handed_too=handed_too))
        return outcomes

    def _going_on(self, targets: list[CancelTarget], places: list[int]) -> list[int]:
        """Return those of the places whose target is handed out again, and is not the last of a series."""
        places = [place for place in places if targets[place].topic is not None]
        if not places:
            return []
        named = self._registry.get([targets[place].registered_name for place in places])
        entries = {place: targets[place].current(entry) for place, entry in zip(places, named, strict=True)}
        again = self._decisions.are_pending(list(entries.values()))
        entries = {place: entries[place] for place, is_pending in zip(places, again, strict=True) if is_pending}
        rows = self._finder.find(list(entries.values()), ("seq", "due_ms", "repeat")) if entries else {}
        return [place for place, entry in entries.items() if entry.seq in rows and _has_successor(rows[entry.seq])]

    def reschedule(self, request: ops.Reschedule, check: CheckTopic = any_topic) -> Rescheduled:
        """Move a message to another due time. ``check`` may refuse its topic before that."""
        due_ms = self._scheduling.due_ms(request.time.get("delay"), request.time.get("due"))
        if request.handle is not None:
            return self._reschedule(request.handle, due_ms, check)
        assert request.topic is not None and request.key is not None
        check(request.topic)
        return self._reschedule_key(request.topic, request.key, due_ms)

    def _reschedule(self, text: str, due_ms: int, check: CheckTopic) -> Rescheduled:
        entry = self._entry(text, None)
        while True:
            series = name_of_series(entry.seq)
            [current] = self._registry.get([series])
            # Also if there is no series yet: its first occurrence may fall due during the search.
            moved = self._move(current or entry, series, due_ms, check)
            if moved is not None:
                return moved

    def _reschedule_key(self, topic: str, key: str, due_ms: int) -> Rescheduled:
        while True:
            [entry] = self._keyed(topic, [key])
            if entry is None:
                self._confirm()
                return Rescheduled(Outcome.UNKNOWN)
            moved = self._move(entry, name_of_key(topic, key), due_ms)
            if moved is not None:
                return moved

    def find_keyed(self, topic: str, key: str) -> pa.RecordBatch | Outcome:
        """Return the message that is pending under a key: see :meth:`tarry.api.local.AnyBroker.find_keyed`."""
        while True:
            [entry] = self._keyed(topic, [key])
            if entry is None:
                self._confirm()
                return Outcome.UNKNOWN
            name = name_of_key(topic, key)
            found = self._find(entry, name)
            if isinstance(found, pa.RecordBatch):
                found = self._unless_gone(found, entry, name)
            if found is not None:
                return found

    def _unless_gone(self, found: pa.RecordBatch, entry: NameEntry, name: bytes) -> pa.RecordBatch | Outcome | None:
        """Return a row that was found, or what became of it; None: another is under that name by now.

        A row is there for as long as its file is, whatever has become of it, and its name until the next sweep.
        """
        state = self._decisions.state_of(entry)
        # The occurrence of a series that is on its way to a queue has its name until the one after it is durable.
        if state is Outcome.DONE or (state is Outcome.DELIVERED and _has_successor(found)):
            return found
        [current] = self._registry.get([name])
        if current is not None and current.seq != entry.seq:
            return None
        self._confirm()
        return state

    def replace_keyed(self, topic: str, key: str, seq: int, successor: pa.RecordBatch) -> Outcome:
        """Replace a message by another: see :meth:`tarry.api.local.AnyBroker.replace_keyed`."""
        [entry] = self._keyed(topic, [key])
        if entry is None:
            self._confirm()
            return Outcome.UNKNOWN
        moved = None
        if entry.seq == seq:
            target = CancelTarget(entry.seq, entry.due_ms, topic, name_of_key(topic, key))
            moved = self._replace(target, successor)
        if moved is None:
            raise StaleCommitError(f"another message than {seq} is under key {key!r:.80} of topic {topic!r} by now")
        return moved.outcome

    def find_key(self, request: ops.FindKey) -> Receipt | None:
        """Return the receipt of the message that is pending under a key."""
        [entry] = self._keyed(request.topic, [request.key])
        if entry is None or self._decisions.state_of(entry) is not Outcome.DONE:
            return None
        rows = self._finder.find([entry], ("seq", "due_ms", "id"))
        id = column(rows, entry.seq, "id") or id_of(entry.seq)
        return Receipt(str(id), entry.seq, entry.due_ms, entry.seq, 1, handle.sign(self._secret, entry.seq, 1))

    def _move(self, entry: NameEntry, name: bytes, due_ms: int, check: CheckTopic = any_topic) -> Rescheduled | None:
        """Move what is under a name to another due time; None: another message is there by now."""
        found = self._find(entry, name)
        if found is None or isinstance(found, Outcome):
            return None if found is None else Rescheduled(found)
        topic = str(found.column("topic")[0].as_py())
        if not _may_change(topic, check):
            outcome = self._decisions.outcome_of(_nowhere(entry))
            return Rescheduled(Outcome.UNKNOWN if outcome is Outcome.DONE else outcome)
        target = CancelTarget(entry.seq, entry.due_ms, topic, name)
        return self._replace(target, _at(found, due_ms, self._clock.now_ms()))

    def _find(self, entry: NameEntry, name: bytes) -> pa.RecordBatch | Outcome | None:
        """Return a message, or what became of it; None: another message is under that name by now."""
        row = self._finder.find([entry], SCHEMA.names).get(entry.seq)
        if row is not None:
            return row
        [current] = self._registry.get([name])
        if current is not None and current.seq != entry.seq:
            return None
        outcome = self._decisions.outcome_of(entry)
        self._confirm()
        # It is pending, but was not found: the handle's due time is not the message's.
        return Outcome.UNKNOWN if outcome is Outcome.DONE else outcome

    def _replace(self, target: CancelTarget, successor: pa.RecordBatch) -> Rescheduled | None:
        moved: Rescheduled | None = self._carry_out(lambda done: Move(target, successor, done, self._secret))
        return moved

    def _keyed(self, topic: str, keys: Sequence[str]) -> list[NameEntry | None]:
        check_topic(topic)
        for key in keys:
            if not KEY.fits(key):
                raise InvalidArgumentError(f"key {key!r:.80}; allowed: a text of 1 to {KEY.bytes_max} bytes")
        return self._registry.get([name_of_key(topic, key) for key in keys])

    def _entry(self, text: str, place: int | None) -> NameEntry:
        where = "" if place is None else f"handle {place}: "
        try:
            named = handle.decode(text)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{where}{error}") from error
        if not handle.verify(named, self._secret):
            raise ForgedHandleError(f"{where}{text!r} was not made by this broker; allowed: its own handles")
        return NameEntry(named.seq, named.due_ms, 0)

    def _carry_out(self, make: Callable[[Callable[[Any], None]], Command]) -> Any:
        return answer_of(lambda done: self._scheduling.carry_out(make(done)))


def _may_change(topic: str, check: CheckTopic) -> bool:
    """Return whether a message that was found may be changed; False: it is to look like none.

    Raises:
        InvalidArgumentError: the topic is Tarry's own. Fronts change what is theirs by key.
    """
    try:
        check(topic)
    except ForbiddenError:
        return False
    if is_internal(topic):
        raise InvalidArgumentError(f"a message of topic {topic!r:.300}: {INTERNAL_TOPIC}")
    return True


def _has_successor(row: pa.RecordBatch) -> bool:
    """Return whether a message is of a series that goes on after it."""
    text = row.column("repeat")[0].as_py()
    if text is None:
        return False
    try:
        state = read_state(text)
    except InvalidArgumentError:
        return False  # of a zone that this machine does not know: it ends here
    return following(state.repeat, row.column("due_ms")[0].as_py(), state.n) is not None


def _nowhere(entry: NameEntry) -> NameEntry:
    """Return a place where no message is, with the due time of one that is hidden."""
    return NameEntry(_NO_SEQ, entry.due_ms, 0)


def _at(row: pa.RecordBatch, due_ms: int, now_ms: int) -> pa.RecordBatch:
    """Return a message (of SCHEMA) as it is stored for another due time (of UNNUMBERED).

    It keeps its id, also a derived one. Its expiry moves with its due time. If it belongs to a series, it begins
    another series, with as many occurrences left.
    """
    values = {name: row.column(name)[0].as_py() for name in ("seq", "due_ms", "id", "expire_ms", "repeat")}
    state = None if values["repeat"] is None else read_state(values["repeat"])
    changed: dict[str, Any] = {
        "due_ms": due_ms,
        "born_ms": now_ms,
        "id": values["id"] or id_of(values["seq"]),
        "expire_ms": None if values["expire_ms"] is None else values["expire_ms"] + due_ms - values["due_ms"],
        "repeat": None if state is None else state_json(replace(state, series=None)),
    }
    columns = [pa.array([changed[f.name]], f.type) if f.name in changed else row.column(f.name) for f in UNNUMBERED]
    return pa.RecordBatch.from_arrays(columns, schema=UNNUMBERED)
