"""Writer of the intake: decides, numbers, writes, fsyncs, publishes and answers, commit by commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tarry.base.errors import TarryError
from tarry.base.types import extremes
from tarry.intake.intake import Intake, tally
from tarry.intake.segments import Segments, WrittenFrame
from tarry.intake.submission import NO_ROWS, Submission, WriteBatch
from tarry.log import frame
from tarry.log.files import TRY_AGAIN, Buffer, not_now
from tarry.message import handle
from tarry.message.accepted import Accepted
from tarry.message.schema import concat, count_topics, kinds_of, numbered

FRAME_ROWS = 4096
"""Small submissions that wait together share a frame, up to about this many rows."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame of a commit: where it is in the log, its rows and its bytes."""

    written: WrittenFrame
    batch: pa.RecordBatch
    parts: Sequence[Buffer]

    @property
    def size(self) -> int:
        return sum(len(p) for p in self.parts)


class IntakeWriter:
    """One thread calls :meth:`commit`.

    ``publish([(batch, bytes), …], add)`` is called when frames are durable, before they are answered: it must call
    ``add()`` under the lock that the loader moves the horizon with, so that each message is seen by exactly one of them
    (see ``wheel``). ``begin_batch(next_seq)`` is called once for a commit in which commands are decided. ``register(
    batch, plain)`` gets the durable rows of such a commit before they are published, where the decided batch has not
    registered all that they say itself; ``plain``: all are messages. ``confirm()`` is called before a commit without
    rows is answered: it returns when its answers, which are about former commits, are certainly still true of them.
    """

    def __init__(
        self,
        segments: Segments,
        intake: Intake,
        *,
        segment_bytes_max: int,
        secret: bytes,
        publish: Callable[[list[tuple[pa.RecordBatch, int]], Callable[[], None]], None],
        begin_batch: Callable[[int], WriteBatch] | None = None,
        register: Callable[[pa.RecordBatch, bool], None] | None = None,
        confirm: Callable[[], None] | None = None,
    ) -> None:
        self._segments = segments
        self._intake = intake
        self._segment_bytes_max = segment_bytes_max
        self._secret = secret
        self._publish = publish
        self._begin_batch = begin_batch
        self._register = register
        self._confirm = confirm

    def commit(self, submissions: list[Submission]) -> None:
        """Commit submissions: number, write, fsync, publish and answer.

        A full disk refuses the submissions; other failures are the caller's to treat as fatal.
        """
        first_seq = self._intake.published_seq
        submissions, refused, batch, command_rows = self._decide(submissions)
        frames = self._encoded(_share_frames(submissions), first_seq)
        try:
            if frames:
                self._segments.append([part for each in frames for part in each.parts])
        except OSError as error:
            if error.errno not in TRY_AGAIN:
                raise
            if batch is not None:
                batch.on_refused()
            refusal = not_now(error, self._segments.directory, "nothing was accepted")
            for s in [*submissions, *(s for s, _ in refused)]:
                s.refuse(refusal)
            return
        if frames:
            self._segments.sync()
            # Before it is published: what is below a checkpoint's seq is not applied again.
            is_known = batch is None or batch.register(command_rows)
            self._publish_frames(frames, are_messages=is_known)
        elif self._confirm is not None:
            self._confirm()
        if batch is not None:
            batch.on_durable()
        self._answer(submissions, first_seq)
        # Not before: a key may be taken by a row of this commit, or by what another owner has cancelled.
        for s, why in refused:
            s.refuse(why)
        if self._segments.active_bytes >= self._segment_bytes_max:
            self._segments.roll(self._intake.published_seq)

    def _decide(
        self, submissions: list[Submission]
    ) -> tuple[list[Submission], list[tuple[Submission, TarryError]], WriteBatch | None, int]:
        """Decide the commands: return submissions with their rows, refused ones, and the number of rows."""
        if not any(s.command is not None for s in submissions):
            return submissions, [], None, 0
        assert self._begin_batch is not None, "nobody is here to decide commands"
        batch = self._begin_batch(self._intake.published_seq)
        decided, refused, command_rows = [], [], 0
        for s in submissions:
            if s.command is not None:
                try:
                    rows = s.command.decide(batch)
                except TarryError as error:
                    refused.append((s, error))
                    continue
                s = Submission(NO_ROWS if rows is None else rows, s.on_result, s.command)
                command_rows += s.batch.num_rows
            batch.next_seq += s.batch.num_rows
            decided.append(s)
        return decided, refused, batch, command_rows

    def _encoded(self, batches: list[pa.RecordBatch], seq: int) -> list[_Frame]:
        (_, durable), position, frames = self._segments.position, self._segments.active_bytes, []
        for batch in batches:
            rows = numbered(batch, seq)
            # A copy: the index keeps it for the life of the segment, and a view would keep the bodies with it.
            due = rows.column("due_ms").to_numpy().copy()
            low, high = extremes(due)
            parts = frame.encode(rows, base=seq, durable_to=durable, due_min_ms=low, due_max_ms=high)
            frames.append(_Frame(WrittenFrame(seq, position, due, low, high), rows, parts))
            position += frames[-1].size
            seq += rows.num_rows
        return frames

    def _publish_frames(self, frames: list[_Frame], *, are_messages: bool) -> None:
        accepted, cancelled = Counter[str](), Counter[str]()
        published = []
        for each in frames:
            batch = each.batch
            plain = are_messages or not kinds_of(batch).any()
            if not are_messages and self._register is not None:
                self._register(batch, plain)
            if plain:
                count_topics(batch.column("topic"), accepted)
            else:
                batch = tally(batch, accepted, cancelled)
            if batch.num_rows:
                published.append((batch, each.size))
        end_seq = frames[-1].written.first_seq + frames[-1].batch.num_rows
        self._publish(
            published, lambda: self._intake.add([each.written for each in frames], accepted, cancelled, end_seq)
        )

    def _answer(self, submissions: Sequence[Submission], seq: int) -> None:
        for s in submissions:
            rows = s.batch.num_rows
            if s.command is not None:
                s.command.on_durable(seq)
            else:
                s.on_result(Accepted(seq, s.batch.column("due_ms").to_numpy(), handle.sign(self._secret, seq, rows)))
            seq += rows


def _share_frames(submissions: Sequence[Submission]) -> list[pa.RecordBatch]:
    frames: list[pa.RecordBatch] = []
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for s in submissions:
        if not s.batch.num_rows:
            continue
        if rows and rows + s.batch.num_rows > FRAME_ROWS:
            frames.append(concat(waiting))
            waiting, rows = [], 0
        waiting.append(s.batch)
        rows += s.batch.num_rows
    return [*frames, concat(waiting)] if waiting else frames
