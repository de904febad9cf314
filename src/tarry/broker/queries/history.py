"""History of one message, put together from its traces. Nothing is kept for it.

The message's row (intake, store or ready log) says when it was accepted and due; the registry, whether it was
cancelled, and its cancellation, when; the ready log, its offset; the groups, its state there; the dead letters, why.
What none of them has is reported as unknown: when exactly it fell due, who had it, how often, and what retention has
deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.api.local import CheckTopic, any_topic
from tarry.api.operations import ListPending
from tarry.api.outcome import Outcome
from tarry.api.views import Event, History
from tarry.base.errors import ForbiddenError, ForgedHandleError, InvalidArgumentError
from tarry.base.types import Key, Mask
from tarry.broker.queries.cut import Places
from tarry.broker.queries.listing import Listing, list_pending
from tarry.broker.queries.messages import MessageFinder
from tarry.broker.queries.traces import find_cancellation, find_row
from tarry.groups import ConsumerGroups, DeadLetters
from tarry.message import handle
from tarry.message.bulk import SEQ_MIN
from tarry.message.criteria import derived_seq
from tarry.message.dead_topics import dead_topic, is_dead_topic
from tarry.message.receipt import id_of
from tarry.message.reserved import DEAD_AT_MS, DEAD_ATTEMPTS, DEAD_CAUSE, DEAD_REASON, DEAD_SEQ, ONLY, texts_of
from tarry.message.schema import SCHEMA, Kind
from tarry.message.topics import check_topic, is_internal
from tarry.names import NameEntry, digest_of_id, name_of_key, name_of_series
from tarry.queue import ReadyLog
from tarry.queue import search as finding
from tarry.repeat import read_state

LOOK_S = 0.5
"""Time for searching, at each place, for traces that no index leads to."""
MESSAGES_MAX = 100
"""Messages of one id that are told of."""
_COLUMNS = [name for name in SCHEMA.names if name != "body"]
_SUCCESSOR = ("seq", "due_ms", "kind", "born_ms", "topic", "id")
_SHOWN = ("topic", "id", "key", "tag", "due_ms", "expire_ms", "tries", "repeat")

NOT_RECORDED = (
    "When it was handed out, to whom, and how often, is not recorded; nor, once it is settled in a group, whether that "
    "was by an acknowledgement, a filter, or a seek."
)
WHEN_DUE = "The moment in which it was put into its queue is not recorded: it is at its due time, or soon after."


@dataclass(frozen=True, slots=True)
class HistorySources:
    """Places where a message leaves traces. ``state_of`` says "done" of one that is still to be delivered."""

    places: Places
    ready: ReadyLog
    groups: ConsumerGroups
    dead_letters: DeadLetters
    finder: MessageFinder
    state_of: Callable[[NameEntry], Outcome]
    secret: bytes
    """That authenticates handles."""


def history(
    sources: HistorySources,
    now_ms: int,
    retention_ms: int,
    what: str,
    topic: str | None,
    check: CheckTopic = any_topic,
) -> History:
    """Return the history of the message that a handle names, or of the messages of an id.

    ``check`` refuses topics and groups that the caller must not see.

    Raises:
        InvalidArgumentError: ``what`` is no text, or ``topic`` is no topic. ForgedHandleError: another broker's handle.
    """
    if not isinstance(what, str) or not what:
        raise InvalidArgumentError(f"what is {what!r:.80}; allowed: a handle, or an id")
    if topic is not None:
        check_topic(topic)
    timeline = _Timeline(sources, now_ms, check)
    entry = _entry(what, sources.secret)
    if entry is not None:
        timeline.describe(entry, None)
    else:
        timeline.search(what, topic)
    if not timeline.events:
        timeline.unknown.append(
            f"Nothing is known of it: it was never accepted here, or it ended longer ago than is kept "
            f"({retention_ms} ms, retention_ms), or the due time is not that of the message."
        )
    in_order = sorted(timeline.events, key=lambda e: (e.at_ms is None, e.at_ms or 0, e.seq or 0))
    return History(what, in_order, list(dict.fromkeys(timeline.unknown)))


def _entry(text: str, secret: bytes) -> NameEntry | None:
    """Return the entry of the message that a handle names; None if ``text`` is no handle, but an id."""
    try:
        decoded = handle.decode(text)
    except InvalidArgumentError:
        return None
    if not handle.verify(decoded, secret):
        raise ForgedHandleError(f"{text!r} was not made by this broker; allowed: its own handles, or an id")
    return NameEntry(decoded.seq, decoded.due_ms, 0)


class _Timeline:
    """Collects events; each message is described once."""

    def __init__(self, sources: HistorySources, now_ms: int, check: CheckTopic) -> None:
        self._places = sources.places
        self._intake = sources.places.intake
        self._registry = sources.places.registry
        self._store = sources.places.store
        self._ready = sources.ready
        self._groups = sources.groups
        self._dead_letters = sources.dead_letters
        self._finder = sources.finder
        self._state_of = sources.state_of
        self._now_ms = now_ms
        self._check = check
        self._described: set[int] = set()
        self._searched: set[tuple[str, str | None]] = set()
        self.events: list[Event] = []
        self.unknown: list[str] = []

    def _add(self, at_ms: int | None, event: str, seq: int, **details: Any) -> None:
        self.events.append(Event(at_ms, event, seq, {k: v for k, v in details.items() if v is not None}))

    # -- finding -----------------------------------------------------------------------------------------------------

    def search(self, id: str, topic: str | None) -> None:
        """Tell of all messages of an id: those accepted just now, what is pending, what has fallen due."""
        if (id, topic) in self._searched:
            return
        self._searched.add((id, topic))
        ready, complete = self._in_ready(id, topic)
        for place in ready[:MESSAGES_MAX]:
            self.describe(_place_of(place.row), place)
        pending, whole = self._pending(id, topic)
        for entry in pending:
            self.describe(entry, None)
        if topic is not None:
            for recent in self._registry.accepted_ids([digest_of_id(topic, id)], self._now_ms).values():
                self.describe(recent, None)
        seq = derived_seq(id)
        if seq is not None and self._intake.first_seq <= seq < self._intake.published_seq:
            rows = self._intake.read_columns(np.array([seq], np.int64), ["seq", "due_ms", "kind", "born_ms"])
            if rows.num_rows and rows.column("kind")[0].as_py() == Kind.MESSAGE:
                self.describe(_place_of(rows), None)
        if not (complete and whole):
            self.unknown.append(f"Not all that is kept was looked through for the id {id!r}: there may be more.")
        if topic is None:
            self.unknown.append(
                "Without a topic, an id is looked for among what is pending and what has fallen due: one that was "
                "cancelled leaves no trace by its id alone."
            )

    def _in_ready(self, id: str, topic: str | None) -> tuple[list[finding.ReadyPlace], bool]:
        seq = derived_seq(id)

        def wanted(batch: pa.RecordBatch) -> Mask:
            mask = pc.fill_null(pc.equal(batch.column("id"), id), False).to_numpy(zero_copy_only=False)
            if seq is not None:
                mask = mask | ((batch.column("seq").to_numpy() == seq) & (batch.column("id").is_null().to_numpy(False)))
            return np.asarray(mask, np.bool_)

        hits, complete = finding.find(self._ready, wanted, topic=topic, deadline_s=time.monotonic() + LOOK_S)
        # A dead letter has its original's id, and is described with the original.
        return [place for place in hits if not is_dead_topic(place.topic.name) or topic is not None], complete

    def _pending(self, id: str, topic: str | None) -> tuple[list[NameEntry], bool]:
        page = list_pending(self._places, Listing.of(ListPending(topic=topic, id=id, limit=MESSAGES_MAX, bodies=False)))
        rows = [_place_of(page.rows.slice(at, 1)) for at in range(page.rows.num_rows)]
        return rows, page.cursor is None

    # -- describing ---------------------------------------------------------------------------------------------------

    def describe(self, entry: NameEntry, place: finding.ReadyPlace | None) -> None:
        """Describe one message; ``place``: its place in the ready log, if that is known."""
        if entry.seq in self._described:
            return
        self._described.add(entry.seq)
        # First the judgement: what falls due after it is seen as pending, which it was.
        outcome = self._state_of(entry)
        row = place.row if place is not None else self._finder.find([entry], _COLUMNS).get(entry.seq)
        if place is None and outcome is not Outcome.DONE:
            place = self._fallen_due(entry, None if row is None else str(row.column("topic")[0].as_py()))
            row = row if place is None else place.row
        if not self._may_see(None if row is None else str(row.column("topic")[0].as_py())):
            return
        if row is None:
            self._without_row(entry, outcome)
            return
        values = {name: row.column(name)[0].as_py() for name in (*_SHOWN, "born_ms", "seq")}
        self._accepted(entry, row, values)
        if place is not None:
            self._due(entry, place, values)
        elif outcome is Outcome.CANCELLED:
            self._cancelled(entry, values)
        elif outcome is Outcome.DONE:
            self._add(values["due_ms"], "pending", entry.seq, place=self._where(entry))
        else:
            self.unknown.append(
                f"Message {entry.seq} fell due, and its row in the ready log has been deleted since: every group had "
                "settled it, or retention has passed."
            )
        self._expired(entry, values, still=place is None and outcome is Outcome.DONE)
        self._series(entry, values)

    def _may_see(self, topic: str | None, group: str | None = None) -> bool:
        try:
            self._check(topic, group)
        except ForbiddenError:
            return False
        return True

    def _accepted(self, entry: NameEntry, row: pa.RecordBatch, values: dict[str, Any]) -> None:
        shown = {name: values[name] for name in _SHOWN}
        shown["id"] = values["id"] or id_of(entry.seq)
        if is_internal(values["topic"]):
            shown["key"] = shown["tag"] = None
        [only] = texts_of(row.column("properties"), ONLY)
        self._add(values["born_ms"], "accepted" if only is None else "respawned", entry.seq, **shown, only=only)

    def _without_row(self, entry: NameEntry, outcome: Outcome) -> None:
        if outcome is Outcome.CANCELLED:
            self._cancelled(entry, None)
            self.unknown.append(f"The row of message {entry.seq} is gone: when it was accepted is not known any more.")
        elif outcome is Outcome.DELIVERED:
            self._add(entry.due_ms, "due", entry.seq)
            self.unknown.append(
                f"The row of message {entry.seq} is gone: it fell due and every group had settled it, or its retention "
                "has passed. That it was delivered is concluded from its due time alone."
            )

    def _where(self, entry: NameEntry) -> str:
        if Key(entry.due_ms, entry.seq) < self._places.wheel.safe:
            return "wheel"
        in_store = entry.seq >= SEQ_MIN or entry.seq < self._store.snapshot.committed_seq
        return "store" if in_store else "intake"

    # -- taken back --------------------------------------------------------------------------------------------------

    def _cancelled(self, entry: NameEntry, values: dict[str, Any] | None) -> None:
        cancellation = find_cancellation(self._intake, self._store, entry, LOOK_S)
        if cancellation is None:
            self._add(None, "cancelled", entry.seq)
            self.unknown.append(f"When message {entry.seq} was cancelled, and whether it was moved, is not known.")
            return
        at_ms, seq = cancellation
        successor = None if values is None else self._moved(entry, values, at_ms, seq)
        if successor is None and values is not None and values["key"] is not None:
            [keyed] = self._registry.get([name_of_key(values["topic"], values["key"])])
            if keyed is not None and keyed.seq > entry.seq and keyed.born_ms == at_ms:
                self._add(at_ms, "replaced", entry.seq, by_seq=keyed.seq, due_ms=keyed.due_ms)
                return
        if successor is None:
            self._add(at_ms, "cancelled", entry.seq)
            return
        self._add(at_ms, "rescheduled", entry.seq, by_seq=successor.seq, due_ms=successor.due_ms)
        self.describe(successor, None)

    def _moved(self, entry: NameEntry, values: dict[str, Any], at_ms: int, cancellation: int) -> NameEntry | None:
        """Return the message at its new time: a reschedule writes it just before the former's cancellation."""
        seq = cancellation - 1
        rows = find_row(self._intake, self._store, seq, _SUCCESSOR, LOOK_S)
        if rows is None:
            self.unknown.append(
                f"Whether message {entry.seq} was cancelled, or moved to a time that has passed, is not known any more."
            )
            return None
        row = {name: rows.column(name)[0].as_py() for name in rows.schema.names} if rows.num_rows else {}
        same = row.get("topic") == values["topic"] and row.get("id") == (values["id"] or id_of(entry.seq))
        # Where ids are not deduped, one accepted in the same millisecond may be the neighbour: its due time tells.
        same = same and row["due_ms"] != entry.due_ms
        if not same or row["kind"] != Kind.MESSAGE or row["born_ms"] != at_ms or seq <= entry.seq:
            return None
        return NameEntry(row["seq"], row["due_ms"], row["born_ms"])

    # -- fallen due --------------------------------------------------------------------------------------------------

    def _fallen_due(self, entry: NameEntry, topic: str | None) -> finding.ReadyPlace | None:
        hits, _ = finding.find(
            self._ready,
            lambda batch: np.asarray(batch.column("seq").to_numpy() == entry.seq),
            topic=topic,
            due_ms=entry.due_ms,
            deadline_s=time.monotonic() + 2 * LOOK_S,
        )
        return hits[0] if hits else None

    def _due(self, entry: NameEntry, place: finding.ReadyPlace, values: dict[str, Any]) -> None:
        at_ms = max(values["due_ms"], values["born_ms"])
        self._add(at_ms, "due", entry.seq, topic=place.topic.name, offset=place.offset)
        self.unknown += [WHEN_DUE, NOT_RECORDED]
        for group in self._groups.all(place.topic.name):
            if not self._may_see(place.topic.name, group.name):
                continue
            # The state that it is in now, whenever it got there.
            self._add(self._now_ms, "group", entry.seq, group=group.name, **group.state_of(place.offset))
            self._dead(entry, place, group.name, values)

    def _dead(self, entry: NameEntry, place: finding.ReadyPlace, group: str, values: dict[str, Any]) -> None:
        """Describe its copy in the dead letters of a group."""
        text = str(entry.seq)

        def wanted(batch: pa.RecordBatch) -> Mask:
            return np.array([t == text for t in texts_of(batch.column("properties"), DEAD_SEQ)], np.bool_)

        name = dead_topic(place.topic.name, group)
        copies, complete = finding.find(self._ready, wanted, topic=name, deadline_s=time.monotonic() + LOOK_S)
        if not complete:
            self.unknown.append(f"Not all dead letters of group {group!r} were looked through.")
        for copy in copies:
            properties = dict(copy.row.column("properties")[0].as_py())
            names = {"cause": DEAD_CAUSE, "reason": DEAD_REASON, "attempts": DEAD_ATTEMPTS}
            details = {name: properties.get(property) for name, property in names.items()}
            settled = not self._dead_letters.has(place.topic.name, group, copy.offset)
            at_ms = int(properties.get(DEAD_AT_MS, copy.row.column("due_ms")[0].as_py()))
            self._add(
                at_ms, "dead", entry.seq, group=group, **details, offset=copy.offset, kept="no" if settled else "yes"
            )
            if settled:
                self.unknown.append("Whether a dead letter was respawned or purged shows only in what was respawned.")
                self.search(values["id"] or id_of(entry.seq), place.topic.name)

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _expired(self, entry: NameEntry, values: dict[str, Any], *, still: bool) -> None:
        if values["expire_ms"] is not None and (still or values["expire_ms"] <= self._now_ms):
            self._add(values["expire_ms"], "expired", entry.seq, to_come=True if still else None)

    def _series(self, entry: NameEntry, values: dict[str, Any]) -> None:
        if values["repeat"] is None:
            return
        first = read_state(values["repeat"]).series
        [current] = self._registry.get([name_of_series(entry.seq if first is None else first)])
        if current is None or current.seq <= entry.seq:
            return
        if self._state_of(current) is Outcome.CANCELLED:
            # The series has ended with it, or goes on by another message of its key.
            self.describe(current, None)
        else:
            self._add(current.due_ms, "next", entry.seq, by_seq=current.seq)


def _place_of(row: pa.RecordBatch) -> NameEntry:
    return NameEntry(*(row.column(name)[0].as_py() for name in ("seq", "due_ms", "born_ms")))
