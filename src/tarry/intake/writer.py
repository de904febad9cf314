"""Writer of the intake: decides, numbers, writes, fsyncs, publishes and answers, commit by commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tarry.base.errors import TarryError
from tarry.base.types import extremes
from tarry.intake.intake import Intake, tally
from tarry.intake.segments import Segments, WrittenFrame
from tarry.intake.submission import NO_ROWS, Submission, WriteBatch
from tarry.intake.under_way import CommitsUnderWay
from tarry.log import frame
from tarry.log.files import TRY_AGAIN, Buffer, not_now
from tarry.message import handle
from tarry.message.accepted import Accepted
from tarry.message.schema import concat, count_topics, kinds_of, numbered

FRAME_ROWS = 4096
"""Small submissions that wait together share a frame, up to about this many rows."""


@dataclass(slots=True)
class _Commit:
    """Submissions that are written together, with what was decided of them.

    ``first_seq``: of its rows. ``command_rows``: how many of them commands ask for.
    """

    first_seq: int
    submissions: list[Submission]
    batch: WriteBatch | None = None
    refused: list[tuple[Submission, TarryError]] = field(default_factory=list)
    command_rows: int = 0
    frames: list[_Frame] = field(default_factory=list)

    @property
    def end_seq(self) -> int:
        rows: int = sum(each.batch.num_rows for each in self.frames)
        return self.first_seq + rows

    @property
    def size(self) -> int:
        return sum(each.size for each in self.frames)

    @property
    def all(self) -> list[Submission]:
        return [*self.submissions, *(s for s, _ in self.refused)]


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

    With ``on_fatal``, a commit without commands does not wait for those before it: several are under way, of up to
    ``under_way_bytes_max``, and another thread publishes and answers them, in order. It is told of what goes wrong
    there, with the submissions that were not answered.
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
        on_fatal: Callable[[BaseException, list[Submission]], None] | None = None,
        under_way_bytes_max: int = 0,
    ) -> None:
        self._segments = segments
        self._intake = intake
        self._segment_bytes_max = segment_bytes_max
        self._secret = secret
        self._publish = publish
        self._begin_batch = begin_batch
        self._register = register
        self._confirm = confirm
        self._on_fatal = on_fatal
        self._next_seq = intake.published_seq
        self._under_way: CommitsUnderWay[_Commit] | None = None
        if on_fatal is not None:
            self._under_way = CommitsUnderWay(
                "tarry-intake-answers", self._finish, self._fail, bytes_max=under_way_bytes_max
            )

    def commit(self, submissions: list[Submission]) -> None:
        """Commit submissions: number, write, fsync, publish and answer.

        A full disk refuses the submissions; other failures are the caller's to treat as fatal.
        """
        self._settle(submissions)
        commit = self._decide(submissions)
        commit.frames = self._encoded(_share_frames(commit.submissions), commit.first_seq)
        try:
            if commit.frames:
                self._segments.append([part for each in commit.frames for part in each.parts])
        except OSError as error:
            if error.errno not in TRY_AGAIN:
                raise
            if commit.batch is not None:
                commit.batch.on_refused()
            refusal = not_now(error, self._segments.directory, "nothing was accepted")
            for s in commit.all:
                s.refuse(refusal)
            return
        self._next_seq = commit.end_seq
        if not commit.frames:
            if self._confirm is not None:
                self._confirm()
            self._finish(commit)
        elif self._under_way is not None:
            self._under_way.put(commit, self._segments.begin_sync(), commit.size)
        else:
            self._segments.sync()
            self._finish(commit)
            self._roll_if_full()

    def close(self) -> None:
        """Finish what is under way. After the last :meth:`commit`."""
        if self._under_way is not None:
            self._under_way.close()

    def _settle(self, submissions: Sequence[Submission]) -> None:
        """Wait for the commits under way where this one cannot begin before."""
        if self._under_way is None:
            return
        is_full = self._segments.active_bytes >= self._segment_bytes_max
        # A command is decided by all that was published, and what has no rows rests on it.
        if is_full or any(s.command is not None or not s.batch.num_rows for s in submissions):
            self._under_way.drain()
        self._roll_if_full()

    def _roll_if_full(self) -> None:
        if self._segments.active_bytes >= self._segment_bytes_max:
            self._segments.roll(self._next_seq)

    def _finish(self, commit: _Commit) -> None:
        """Publish and answer a commit that is durable."""
        batch = commit.batch
        if commit.frames:
            # Before it is published: what is below a checkpoint's seq is not applied again.
            is_known = batch is None or batch.register(commit.command_rows)
            self._publish_frames(commit.frames, are_messages=is_known)
        if batch is not None:
            batch.on_durable()
        self._answer(commit.submissions, commit.first_seq)
        # Not before: a key may be taken by a row of this commit, or by what another owner has cancelled.
        for s, why in commit.refused:
            s.refuse(why)

    def _fail(self, error: BaseException, commits: list[_Commit]) -> None:
        assert self._on_fatal is not None
        self._on_fatal(error, [s for commit in commits for s in commit.all])

    def _decide(self, submissions: list[Submission]) -> _Commit:
        """Decide the commands: return submissions with their rows, and refused ones."""
        if not any(s.command is not None for s in submissions):
            return _Commit(self._next_seq, submissions)
        assert self._begin_batch is not None, "nobody is here to decide commands"
        batch = self._begin_batch(self._next_seq)
        commit = _Commit(self._next_seq, [], batch)
        for s in submissions:
            if s.command is not None:
                try:
                    rows = s.command.decide(batch)
                except TarryError as error:
                    commit.refused.append((s, error))
                    continue
                s = Submission(NO_ROWS if rows is None else rows, s.on_result, s.command)
                commit.command_rows += s.batch.num_rows
            batch.next_seq += s.batch.num_rows
            commit.submissions.append(s)
        return commit

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
