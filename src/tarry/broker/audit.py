"""The audit log of a broker: who changed what, and who was refused.

A change is written, durably, before it is answered. What changes who may do what is written before it begins, too: a
crash in between leaves a line "begun" without an end, and never a change that no line tells of. Refusals are written
within bounds (:mod:`tarry.identity.refusals`), and become durable within a moment.

One thread writes; it makes all that waits durable at once. Decision 52.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from tarry.api.audit import AskedBy, AuditRecord
from tarry.api.audited import AUDITED, AuditKind, told
from tarry.api.operation import Operation
from tarry.api.operations import ReadAuditLog
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import CorruptError, NotFoundError, TarryError
from tarry.base.version import VERSION
from tarry.broker.audit_bounds import CHANGE_BYTES_MAX, ChangeBounds, cut_texts
from tarry.broker.audit_log import AuditLimits, AuditLog, Line
from tarry.broker.audit_reading import read_lines
from tarry.broker.health import Health
from tarry.identity.refusals import Refusals
from tarry.log.commit import GroupCommit, as_tarry_error
from tarry.log.engine import Log
from tarry.log.files import TRY_AGAIN, Files, not_now

log = logging.getLogger(__name__)

R = TypeVar("R")

QUEUE_BYTES_MAX = 8 << 20
NOTED_MAX = 1_000
"""Lines that nobody waits for and that are not written yet; more are counted as lost."""
DETAILS_BYTES_MAX = 64 << 10
"""Longer details of a change of identities are left out, but for their hash."""
TICK_S = 1.0
"""Seconds until a line that nobody waits for is durable, and until ``head.json`` has a line."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A line to write; None: what is there is made durable and tidied up."""

    line: Line | None
    written: Future[int] | None
    """Gets the line's number once it is durable; None: nobody waits."""


class AuditWriter:
    """Writes and reads a broker's audit log. Any thread."""

    def __init__(
        self,
        audit_log: AuditLog | None,
        data: Path,
        clock: Clock,
        health: Health,
        *,
        threaded: bool,
        copy: bool,
        by: AskedBy | None = None,
    ) -> None:
        """``audit_log``: None: nothing is written. ``copy``: each line goes to stderr, too.

        ``by``: whoever has the directory open, if it is no broker.
        """
        self._by = {} if by is None else by.fields()
        self._log, self._data, self._clock, self._health, self._copy = audit_log, data, clock, health, copy
        self.refusals = Refusals(clock.now_ms, None if audit_log is None else self.note)
        """Is told who was refused."""
        self.kinds: Mapping[type[Operation[Any]], AuditKind] = {} if audit_log is None else AUDITED
        """The operations that are written."""
        self.lines = self.lost = 0
        """Lines that were written since the start, and those that could not be."""
        self._noted = self._lost_untold = 0
        self._bounds = ChangeBounds()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._commits: GroupCommit[_Item] | None = None
        self._ticks: threading.Thread | None = None
        if audit_log is not None:
            self._commits = GroupCommit(
                "tarry-audit", self._commit, self._on_fatal, weight_max=QUEUE_BYTES_MAX, threaded=threaded
            )
        if audit_log is not None and threaded:
            self._ticks = threading.Thread(target=self._tick, name="tarry-audit-tick", daemon=True)
            self._ticks.start()

    @classmethod
    def open(
        cls,
        config: Config,
        clock: Clock,
        lines: Log,
        files: Files,
        health: Health,
        on_damage: Callable[[CorruptError], None],
        *,
        threaded: bool,
        wanted: bool,
        by: AskedBy | None = None,
    ) -> AuditWriter:
        """Open the audit log of a data directory, whose lines are in ``lines``.

        Nothing is written if it is not ``wanted``, or off. ``by``: whoever opens it, if it is no broker; its beginning
        and end are told with that.

        Raises:
            OSError: the disk does not allow it.
        """
        if not wanted or config.audit_log == "off":
            return cls(None, config.data, clock, health, threaded=threaded, copy=False)
        limits = AuditLimits(config.audit_log_file_bytes, config.audit_log_bytes_max, config.audit_log_retention_ms)
        audit_log = AuditLog(lines, files, config.data, limits, clock.now_ms(), on_damage)
        copy = config.audit_log_copy == "stderr"
        audit = cls(audit_log, config.data, clock, health, threaded=threaded, copy=copy, by=by)
        audit.note({**audit._by, "operation": "start", "outcome": "done", "details": {"version": VERSION}})
        return audit

    @property
    def is_on(self) -> bool:
        """True if lines are written."""
        return self._log is not None

    @property
    def state(self) -> dict[str, Any]:
        """Lines of this process, and refusals by reason, for the status."""
        return {"on": self.is_on, "lines": self.lines, "lost": self.lost, "refused": self.refusals.counts}

    def carry_out(
        self, operation: Operation[R], asked: AskedBy, do: Callable[[], R], found: Mapping[str, str] | None = None
    ) -> R:
        """Carry out an operation of :attr:`kinds`, and write it down.

        ``found``: details that the operation itself does not have.

        Raises:
            DiskFullError, OverloadedError: the log cannot be written, so nothing was begun. TarryError: as ``do``.
        """
        kind, line = self.kinds[type(operation)], self._line_of(operation, asked, found or {})
        if kind is AuditKind.READ:
            result = do()
            self.refusals.read({**line, "outcome": "done"})
            return result
        if kind is AuditKind.IDENTITY:
            line["of"] = self._write({**line, "outcome": "begun"})
        write = self._write_end if kind is AuditKind.IDENTITY else self._write_bounded
        try:
            result = do()
        except BaseException as error:
            code = error.code if isinstance(error, TarryError) else "internal"
            write({**line, "outcome": "failed", "code": code})
            raise
        write({**line, **_made(line, result), "outcome": "done"})
        return result

    def note(self, line: Line) -> None:
        """Write a line that nobody waits for, or count it as lost."""
        with self._lock:
            has_room = self._noted < NOTED_MAX
            if has_room:
                self._noted += 1
        if not has_room:
            self._lose()
            return
        try:
            self._submit({"at_ms": self._clock.now_ms(), **line}, None)
        except TarryError:
            with self._lock:
                self._noted -= 1
            self._lose()

    def read(self, request: ReadAuditLog) -> list[AuditRecord]:
        """Return lines: see :class:`tarry.api.operations.ReadAuditLog`."""
        if self._log is None:
            raise NotFoundError("this broker writes no audit log; allowed: tarry serve with audit_log=on")
        return read_lines(self._data, request)

    def tick(self) -> None:
        """Make durable what nobody waits for, and delete what is old."""
        self.refusals.flush()
        self._tell_counts()
        if self._commits is not None:
            self._commits.submit(_Item(None, None), 0)

    def close(self) -> None:
        """Write what waits, and close the files."""
        self._stopped.set()
        if self._ticks is not None:
            self._ticks.join()
        if self._commits is not None and self._log is not None:
            self._tell_counts(all_of_them=True)
            self.note({**self._by, "operation": "stop", "outcome": "done"})
            self._commits.close()
            if self._health.fatal is None:
                self._log.close(self._clock.now_ms())

    # -- writing -------------------------------------------------------------------------------------------------------

    def _line_of(self, operation: Operation[Any], asked: AskedBy, found: Mapping[str, str]) -> dict[str, Any]:
        details, bytes_max = {**told(operation), **found}, DETAILS_BYTES_MAX
        if self.kinds[type(operation)] is not AuditKind.IDENTITY:
            details, bytes_max = cut_texts(details), CHANGE_BYTES_MAX
        content = json.dumps(details, default=str).encode()
        if len(content) > bytes_max:
            details = {"bytes": len(content), "blake2b": blake2b(content, digest_size=32).hexdigest()}
        line = {"at_ms": self._clock.now_ms(), **asked.fields(), "operation": operation.wire.name}
        return {**line, "details": details} if details else line

    def _write(self, line: Line) -> int:
        written: Future[int] = Future()
        self._submit(line, written)
        return written.result()

    def _write_bounded(self, line: Line) -> None:
        """Write what has happened already, or count it where its caller does the same too often."""
        for each in self._bounds.take(line, self._clock.now_ms()):
            self._write_end(each)

    def _tell_counts(self, *, all_of_them: bool = False) -> None:
        """Write how many changes were counted in times that are over, or until now."""
        now_ms = self._clock.now_ms()
        for line in self._bounds.counts(now_ms, all_of_them=all_of_them):
            self.note({**line, "at_ms": now_ms})

    def _write_end(self, line: Line) -> None:
        """Write what has happened already: it is answered as it was, whatever becomes of the line."""
        try:
            self._write({**line, "at_ms": self._clock.now_ms()})
        except TarryError as error:
            log.error("audit log: %s of %s is not written: %s", line["operation"], line.get("who"), error)
            self._lose()

    def _submit(self, line: Line, written: Future[int] | None) -> None:
        assert self._commits is not None
        self._commits.submit(_Item(line, written), len(str(line)))

    def _lose(self) -> None:
        with self._lock:
            self.lost += 1
            self._lost_untold += 1

    def _commit(self, items: list[_Item]) -> None:
        """Write lines; called by one thread at a time."""
        assert self._log is not None
        lines = [item.line for item in items if item.line is not None]
        with self._lock:
            self._noted -= sum(item.line is not None and item.written is None for item in items)
            lost = self._lost_untold
        first = self._log.end.number
        more: list[Line] = [] if not lost else [_lost_line(self._clock.now_ms(), lost)]
        written: list[bytes] = []
        try:
            if lines or lost:
                written = self._log.append([*lines, *more])
            if any(item.written is not None for item in items):
                self._log.sync()
            if any(item.line is None for item in items):
                self._log.keep(self._clock.now_ms())
        except OSError as error:
            if error.errno not in TRY_AGAIN:
                raise
            refused = not_now(error, self._data, "the audit log is not written")
            for item in items:
                if item.written is not None:
                    item.written.set_exception(refused)
                elif item.line is not None:
                    self._lose()
            return
        with self._lock:
            self.lines += len(lines) + len(more)
            self._lost_untold -= lost
        if self._copy and written:
            sys.stderr.write("".join(line.decode() + "\n" for line in written))
            sys.stderr.flush()
        waiting = (item for item in items if item.line is not None)
        for number, item in enumerate(waiting, first):
            if item.written is not None:
                item.written.set_result(number)

    def _on_fatal(self, error: BaseException, items: list[_Item]) -> None:
        self._health.fail(error)
        for item in items:
            if item.written is not None and not item.written.done():
                item.written.set_exception(as_tarry_error(error, "the audit log"))

    def _tick(self) -> None:
        while not self._stopped.wait(TICK_S):
            try:
                self.tick()
            except TarryError:
                return  # it has failed, or is closed


def _lost_line(now_ms: int, lost: int) -> Line:
    return {"at_ms": now_ms, "operation": "audit-log-lost", "outcome": "failed", "more": lost}


def _made(line: Line, result: object) -> dict[str, Any]:
    """Return what a result adds to a line: the id of what was made, or a count."""
    id = getattr(result, "id", None)
    if isinstance(id, str):
        return {"details": {**line.get("details", {}), "id": id}}
    if isinstance(result, int) and not isinstance(result, bool):
        return {"details": {**line.get("details", {}), "count": result}}
    return {}
