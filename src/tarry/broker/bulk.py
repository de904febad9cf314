"""Bulk jobs: messages written straight into the store, in one commit per job, and cancelled together.

The store's commit decides: with it the whole job is there, without it nothing of it is. Then the intake's log records
the job (``tarry.message.bulk``), and only then may the loader take up that version of the store. So nothing of a job
fires before the log knows of the job, and no checkpoint says that everything has fired while some of a job is still to
come. If a crash comes between the two commits, the log is completed when the broker opens.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from tarry.api.jobs import Job, JobCancelled, JobState, StagedFile
from tarry.api.outcome import Outcome
from tarry.base.clock import Clock
from tarry.base.errors import DiskFullError, InvalidArgumentError, InvalidMessageError, TarryError
from tarry.base.waiting import wait_for
from tarry.broker.acceptance import Acceptance
from tarry.broker.commands.append_rows import AppendRows
from tarry.broker.job_announcements import JobAnnouncements
from tarry.broker.job_cancelling import JobCancelling
from tarry.broker.jobs import Jobs
from tarry.broker.key_backfill import KeyBackfill
from tarry.broker.scheduling import Scheduling
from tarry.broker.store_view import StoreFollower
from tarry.broker.topic_bound import TopicBound
from tarry.intake import NO_ROWS, Command, Submission
from tarry.message.admission import MessageLimits, admit
from tarry.message.bulk import first_seq, job_rows, number_of, prefix_of
from tarry.message.schema import Kind, chunks, count_topics, numbered
from tarry.message.topics import INTERNAL_TOPIC, check_topic, is_internal
from tarry.store import Store, check_claims, remove_staged, stage, staging
from tarry.store.layout import CANCELLED

log = logging.getLogger(__name__)

CHUNK_BYTES = 32 << 20
"""Bytes staged at once of messages that arrive over the wire; sorting needs about three times that."""
CHUNK_FILES_MAX = 4
STAGED_COLUMNS = ("topic", "due_ms", "id", "key", "tag", "properties", "body", "expire_ms", "tries")


@dataclass(eq=False)
class Bulk:
    """Carries out the operations of bulk jobs. Any thread.

    ``on_news`` makes the loader look at the store. ``confirm`` is :attr:`tarry.broker.opened_files.Opened.confirm`.
    """

    _jobs: Jobs
    _store: Store
    _follower: StoreFollower
    _announcements: JobAnnouncements
    _scheduling: Scheduling
    _acceptance: Acceptance
    _key_backfill: KeyBackfill
    _cancelling: JobCancelling
    _clock: Clock
    limits: MessageLimits
    _bound: TopicBound
    _on_news: Callable[[], None]
    _confirm: Callable[[], None]
    _one: threading.Lock = field(default_factory=threading.Lock)  # one commit or cancellation of a job at a time

    @contextmanager
    def held(self) -> Iterator[None]:
        """Commit and cancel no job meanwhile. For what is short."""
        with self._one:
            yield

    # -- loading -----------------------------------------------------------------------------------------------------

    def begin(self, job: str, attempt: str | None = None) -> Job:
        """Begin a new attempt of a job; return the committed one if nothing is to be done.

        A job that was cancelled stays cancelled. Callers that give the same ``attempt`` share one attempt, as long as
        it is open.

        Raises:
            InvalidArgumentError: the name is not allowed for a job.
            OverloadedError: the job is being committed; try again.
        """
        self._acceptance.check_serving()
        highest = int(self._follower.snapshot.files.seq_max.max(initial=0))
        above = number_of(highest) + 1 if highest >= first_seq(0) else 0
        return self._jobs.begin(job, self._clock.now_ms(), number_min=above, attempt=attempt)

    def reserve(self, number: int, rows: int) -> int:
        """Reserve ``rows`` seqs for messages of an attempt, and return the first.

        The caller is about to write the messages, so this is where a disk that is nearly full refuses: consumers need
        what is left of it.

        Raises:
            NotFoundError, StaleCommitError: the attempt does not exist, or is not open.
            InvalidArgumentError: too many rows.
            DiskFullError: free disk is below the watermark.
        """
        self._acceptance.check_disk()
        return self._jobs.reserve(number, rows)

    def stage(self, number: int, batches: Iterable[pa.RecordBatch]) -> tuple[list[StagedFile], Counter[str]]:
        """Write batches with :data:`STAGED_COLUMNS` as files of an attempt, for its commit.

        For clients that cannot reach the store themselves. Return the files, and the number of messages of each topic.

        Raises:
            InvalidMessageError: names the row and what is allowed.
            NotFoundError, StaleCommitError, DiskFullError: as :meth:`reserve`. No file is left then.
        """
        topics = Counter[str]()
        with staging(self._store.root, "the job") as files:
            for chunk in chunks(map(self._admitted, batches), CHUNK_BYTES):
                files += self._staged(number, chunk, topics)
        return files, topics

    def _admitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = batch.schema.names
        if "repeat" in names and batch.column("repeat").null_count < batch.num_rows:
            raise InvalidMessageError("repeat is not for bulk jobs: a series has one message pending at a time")
        given = batch.select([n for n in STAGED_COLUMNS if n in names])
        return admit(given, self._clock.now_ms(), self.limits, start_ms=self._clock.start_ms(), again=True)

    def _staged(self, number: int, chunk: Sequence[pa.RecordBatch], topics: Counter[str]) -> list[StagedFile]:
        table = pa.Table.from_batches(chunk)
        start = self.reserve(number, table.num_rows)
        count_topics(table["topic"], topics)
        prefix = f"{prefix_of(number)}{start - first_seq(number)}"
        store = self._store
        return stage(
            numbered(table, start),
            store.root,
            prefix,
            self._clock.now_ms(),
            shard=store.shard,
            files_max=CHUNK_FILES_MAX,
        )

    def commit(
        self, number: int, files: Sequence[StagedFile], topics: Mapping[str, int], keys: int | None = None
    ) -> tuple[Job, int]:
        """Publish all files of an attempt at once, durably; return the attempt and the store's version.

        A repeated call returns the same. ``keys``: how many of the messages have a key, if known; they are registered
        soon afterwards.

        Raises:
            NotFoundError, StaleCommitError: the attempt does not exist, is not open, or one of its files is gone.
            InvalidArgumentError: the files are not of this attempt, or do not hold what the caller claims.
            UnavailableError, DiskFullError, OverloadedError: not now; another try finds out whether it is committed.
        """
        self._acceptance.check_serving()
        with self._one:
            if self._jobs.unannounced() is not None:
                # It is this attempt, or another whose outcome is in doubt: the store names only the last one.
                self.announce()
            attempt = self._jobs.get(number)
            if attempt.state is JobState.COMMITTED:
                # Ask the store itself: the loader may not have taken the job's version up yet.
                return attempt, self._store.snapshot().version
            attempt = self._jobs.open_one(number)
            span = _checked(attempt, files, topics, self._store.shard)
            if span is None:
                self._jobs.done(number, self._clock.now_ms())
                return self._jobs.get(number), self._store.snapshot().version
            self._bound.check_names(topics)
            check_claims(self._store.root, files)
            version = self._commit(attempt, files, dict(topics), span, keys)
            self.announce()
            self._key_backfill.start()
            return self._jobs.get(number), version

    def _commit(
        self,
        attempt: Job,
        files: Sequence[StagedFile],
        topics: dict[str, int],
        span: tuple[int, int],
        keys: int | None,
    ) -> int:
        number = attempt.number
        # Under this lock: a look at the store that began before has ended, and none begins until the log knows the job.
        with self._announcements.look_lock:
            self._jobs.committing(number, topics, span, keys)
            self._announcements.unannounced = number
        try:
            return self._store.commit_bulk(files, number).version
        except TarryError:
            # A commit that failed may have taken place, if only its answer was lost.
            if self._store.bulk_number() == number:
                return self._store.snapshot().version
            self._jobs.reopen(number)
            self._announcements.unannounced = None
            raise

    def announce(self) -> None:
        """Record in the intake's log a job that is committed in the store but not yet in the log, if any.

        If a commit was in doubt and the store does not have it, its attempt is open again.

        Raises:
            UnavailableError, DiskFullError, OverloadedError, ClosedError, FatalError: not now.
        """
        if self._announce(self._scheduling.carry_out):
            self._on_news()

    def announce_before_serving(self, commit: Callable[[list[Submission]], None]) -> None:
        """Do the same as :meth:`announce`, before the intake's writer runs, by its function ``commit``.

        It completes what a crash left between the two commits.
        """
        try:
            self._announce(lambda command: commit([Submission(NO_ROWS, lambda _: None, command)]))
        except DiskFullError as error:
            log.warning("a bulk job that is in the store cannot be announced yet: %s", error)

    def announce_again(self) -> None:
        """Retry an announcement that failed, because of a full disk for example.

        Nothing happens while a job is being committed.
        """
        if self._announcements.unannounced is not None and self._one.acquire(blocking=False):
            try:
                self.announce()
            except TarryError as error:
                log.warning("a bulk job that is in the store cannot be told of yet: %s", error)
            finally:
                self._one.release()

    def _announce(self, carry_out: Callable[[Command], None]) -> bool:
        attempt = self._jobs.unannounced()
        if attempt is not None and self._store.bulk_number() != attempt.number:
            # The commit failed while the store could not be asked, or a full disk kept us from recording that.
            self._jobs.reopen(attempt.number)
            attempt = None
        if attempt is not None:
            rows = job_rows(Kind.JOB, attempt.number, attempt.topics, self._clock.now_ms())
            wait_for(lambda done: carry_out(AppendRows(rows, done)))
            self._announcements.announced(attempt.number)
        self._announcements.unannounced = None
        return attempt is not None

    def abort(self, number: int) -> None:
        """Refuse an attempt's commit from now on, and remove its files.

        Raises:
            NotFoundError: there is no such attempt.
        """
        self._acceptance.check_serving()
        with self._one:
            if self._jobs.get(number).state in (JobState.OPEN, JobState.ABORTED):
                # Files first: on a full disk, recording the abort needs the room that they take. A commit that comes
                # nevertheless finds that files are missing. Files of tasks that still write become orphans. So do all
                # where this broker may have been taken over: a new owner may go on with the attempt, and commit it.
                store = self._store
                if store.epoch is None:
                    remove_staged(store.root, store.shard, prefix_of(number))
            self._jobs.abort(number)

    # -- cancelling ----------------------------------------------------------------------------------------------------

    def cancel(self, job: str) -> JobCancelled:
        """Cancel all pending messages of a job, durably. An uncommitted job can never be committed then.

        Raises:
            UnavailableError, DiskFullError, OverloadedError: not now; nothing was cancelled.
        """
        self._acceptance.check_serving()
        with self._one:
            answer = self._cancel(job)
        if not answer.cancelled:
            self._confirm()  # a later owner may have the job, or what it has may be moved or cancelled there
        return answer

    def _cancel(self, job: str) -> JobCancelled:
        attempt = self._jobs.last(job)
        if attempt is None:
            return JobCancelled(Outcome.UNKNOWN, 0, 0)
        if attempt.state is JobState.COMMITTING:
            self.announce()
            attempt = self._jobs.get(attempt.number)
        if attempt.state is JobState.CANCELLED:
            return JobCancelled(Outcome.CANCELLED, 0, attempt.rows)
        if attempt.state in (JobState.OPEN, JobState.ABORTED) or not attempt.rows:
            self._jobs.forbid(attempt.number)
            return JobCancelled(Outcome.DONE, 0, attempt.rows)
        cancelled = self._cancelling.cancel(attempt.number)
        return JobCancelled(Outcome.DONE if cancelled else Outcome.DELIVERED, cancelled, attempt.rows)

    # -- asking --------------------------------------------------------------------------------------------------------

    def list(self, job: str | None = None, limit: int = 100) -> list[Job]:
        """Return the last attempt of a job, or of the jobs begun last, the newest first."""
        if job is None:
            return self._jobs.recent(limit)
        last = self._jobs.last(job)
        return [] if last is None else [last]


def _checked(
    attempt: Job, files: Sequence[StagedFile], topics: Mapping[str, int], shard: int
) -> tuple[int, int] | None:
    """Check an attempt's files, and return the span of their due times; None if it has no messages."""
    first, end = first_seq(attempt.number), first_seq(attempt.number) + attempt.reserved
    for file in files:
        if not (first <= file.seq_min <= file.seq_max < end and file.rows > 0 and file.shard == shard):
            raise InvalidArgumentError(
                f"file {file.path} has {file.rows} rows with seqs {file.seq_min} to {file.seq_max} of shard "
                f"{file.shard}; allowed: 1 or more, {first} to {end - 1}, {shard}"
            )
        place = f"shard={shard}/bucket={file.bucket}/"
        # Names are decoded like those of a Delta log, where %2e is a dot. Staging makes no names with a %.
        strays = "%" in file.path or not {"", ".", ".."}.isdisjoint(file.path.split("/"))
        if strays or not file.path.startswith(place) or file.bucket == CANCELLED:
            raise InvalidArgumentError(
                f"file {file.path!r} of bucket {file.bucket!r}; allowed: a path below shard={shard}/bucket=… of a "
                "bucket of messages, without %, empty parts, . and .."
            )
        for topic in (file.topic_min, file.topic_max):
            if topic not in topics:
                raise InvalidArgumentError(
                    f"file {file.path} has messages of topic {topic!r}; allowed: those counted, {sorted(topics)!r:.200}"
                )
    if len({file.path for file in files}) < len(files):
        raise InvalidArgumentError("a file is named twice; allowed: each once")
    for topic, rows in topics.items():
        if is_internal(check_topic(topic)):
            raise InvalidArgumentError(f"topic {topic!r}: {INTERNAL_TOPIC}")
        if rows < 1:
            raise InvalidArgumentError(f"{rows} messages of topic {topic!r}; allowed: 1 or more")
    if sum(topics.values()) != sum(file.rows for file in files):
        raise InvalidArgumentError(
            f"{sum(topics.values())} messages by topic, but {sum(file.rows for file in files)} in files; "
            "allowed: the same number"
        )
    if not files:
        return None
    return min(file.due_min_ms for file in files), max(file.due_max_ms for file in files)
