"""Notes hand-outs of traced messages and their ends.

It is called with a group's lock held, so it only appends to a queue.

A batch without properties costs a comparison, and one without a sampled ``traceparent`` a look at the names of its
properties. What is in consumers' hands is kept with its lease, so there is no more of it than of leases.
"""

from __future__ import annotations

import pyarrow as pa

from tarry.base.clock import Clock
from tarry.base.types import Int32s, Int64s
from tarry.broker.traces.spans import HandOutSpan, SpanQueue, Traced, WaitSpan
from tarry.groups.leases import OnLeaseEnd
from tarry.groups.states import State, StateEvent, States
from tarry.message.receipt import id_of
from tarry.message.schema import SCHEMA
from tarry.message.trace_context import sampled_rows

_PROPERTIES = SCHEMA.get_field_index("properties")
_OUTCOMES: dict[StateEvent, tuple[str, bool]] = {
    StateEvent.ACK: ("acknowledged", False),
    StateEvent.RETURN: ("released", False),
    StateEvent.NACK: ("given back", True),
    StateEvent.EXPIRE: ("lease expired", True),
    StateEvent.RELEASE: ("consumer gone", True),
    StateEvent.EXHAUST: ("dead letter", True),
    StateEvent.SEEK_BACK: ("seek", False),
}
"""Outcome of a hand-out by the event that ended it, and whether it is an error."""


class HandOutRecorder:
    """Implements :class:`tarry.groups.services.HandOutTraces`. Any thread."""

    def __init__(self, clock: Clock, queue: SpanQueue) -> None:
        self._clock = clock
        self._queue = queue

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
        """See :class:`tarry.groups.services.HandOutTraces`."""
        held: dict[int, Traced] = {}
        for row, producer in sampled_rows(batch.column(_PROPERTIES)):
            seq, message_id, due_ms, born_ms = (
                batch.column(name)[row].as_py() for name in ("seq", "id", "due_ms", "born_ms")
            )
            body, attempt = batch.column("body")[row].as_buffer(), int(attempts[row])
            message = Traced(
                *(producer, topic, group, seq, message_id or id_of(seq), 0 if body is None else body.size),
                *(due_ms, due_ms if born_ms is None else born_ms, now_ms, attempt),
            )
            # What a consumer gave back unseen, or what comes again, has had its wait.
            if attempt == 1 and (states if isinstance(states, State) else states[row]) == State.READY:
                self._queue.add(WaitSpan(message))
            held[int(offsets[row])] = message
        return _Hold(self, held) if held else None

    def ended(self, message: Traced, event: StateEvent) -> None:
        """Note that a hand-out has ended."""
        outcome, is_error = _OUTCOMES[event]
        self._queue.add(HandOutSpan(message, self._clock.now_ms(), outcome, is_error))


class _Hold:
    """The traced messages of a lease, by offset. Guarded by the group's lock."""

    __slots__ = ("_messages", "_recorder")

    def __init__(self, recorder: HandOutRecorder, messages: dict[int, Traced]) -> None:
        self._recorder = recorder
        self._messages = messages

    def __call__(self, offsets: Int64s, event: StateEvent) -> None:
        if self._messages:
            for offset in self._messages.keys() & offsets.tolist():
                self._recorder.ended(self._messages.pop(offset), event)
