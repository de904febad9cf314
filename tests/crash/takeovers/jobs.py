"""Programs beside the clients: bulk jobs, and the pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tarry.api.jobs import JobState
from tests.crash.takeovers.cluster import Cluster
from tests.crash.takeovers.history import JobCancel
from tests.crash.takeovers.machines import Machine
from tests.crash.takeovers.producers import Producers, rows_of
from tests.crash.tools import commit_intake
from tests.takeover.events import UNKNOWN, Cancel, Placing, Send


@dataclass
class Jobs:
    """Each method is what a program asks of one machine."""

    _cluster: Cluster
    _producers: Producers
    _rows: dict[str, list[Placing]] = field(default_factory=dict)
    """Names and due times of each job's messages."""
    _unheard: list[str] = field(default_factory=list)
    """Jobs that may be committed, or not."""

    def load(self, machine: Machine) -> None:
        """A new job; or one whose answer was lost, again."""
        if self._unheard and self._cluster.rng.random() < 0.7:
            job = self._unheard.pop()
        else:
            job = f"j{len(self._rows)}"
            names = [self._producers.new_name() for _ in range(self._cluster.rng.randint(1, 9))]
            self._rows[job] = [(name, self._producers.new_due_ms(name)) for name in names]
        begin_ms, life = self._cluster.now_ms(), machine.epoch
        answer, error = self._cluster.ask(machine, partial(_load, machine, job, self._rows[job]))
        word, first_seq = (UNKNOWN, None) if error else answer
        times: dict[str, Any] = {"begin_ms": begin_ms, "end_ms": self._cluster.now_ms(), "life": life}
        for number, (name, due_ms) in enumerate(self._rows[job]):
            seq = None if first_seq is None else first_seq + number
            self._cluster.history.calls.append(Send(answer=word, name=name, due_ms=due_ms, seq=seq, **times))
        if error:
            self._unheard.append(job)
        else:
            self._cluster.history.jobs[job] = self._rows[job]

    def cancel(self, machine: Machine) -> None:
        """A job that is committed."""
        history = self._cluster.history
        if not history.jobs:
            return
        job = self._cluster.rng.choice(list(history.jobs))
        begin_ms, life = self._cluster.now_ms(), machine.epoch
        cancelled, error = self._cluster.ask(machine, partial(machine.broker.cancel_job, job))
        times: dict[str, Any] = {"begin_ms": begin_ms, "end_ms": self._cluster.now_ms(), "life": life}
        count = 0 if error else cancelled.cancelled
        word = UNKNOWN if error else str(cancelled.outcome)
        history.job_cancels.append(JobCancel(job=job, answer=word, cancelled=count, **times))
        is_certain = count == len(history.jobs[job]) or word == "delivered"
        for target in history.jobs[job] if word != "cancelled" else []:
            # Of some of them it is not said which.
            history.calls.append(Cancel(answer=word if is_certain else UNKNOWN, target=target, **times))

    def commit_intake(self, machine: Machine) -> None:
        """The pipeline commits what the intake has to the store, and segments of the intake may be deleted."""
        if not self._cluster.ask_former(machine, partial(commit_intake, machine.broker)).error:
            self._cluster.note("the pipeline commits", machine)


def _load(machine: Machine, job: str, rows: list[Placing]) -> tuple[str, int | None]:
    bulk = machine.broker.components.bulk
    attempt = bulk.begin(job)
    if attempt.state is not JobState.OPEN:
        return "duplicate", None
    files, topics = bulk.stage(attempt.number, [rows_of([name for name, _ in rows], [due_ms for _, due_ms in rows])])
    bulk.commit(attempt.number, files, topics)
    return "scheduled", min(file.seq_min for file in files)
