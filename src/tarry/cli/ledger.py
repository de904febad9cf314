"""Ledgers for ``tarry audit``: a line of JSON for each answer to a producer, or each hand-out.

They are written by ``send --ledger`` and ``receive --ledger``. Columns: docs/reports.md.

A line is written when the broker has answered, and before the hand-out is acknowledged: what is not in a ledger after a
crash was not answered, or comes again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TextIO

import typer

from tarry.base.errors import InvalidArgumentError
from tarry.message.options import UNMET

if TYPE_CHECKING:
    from tarry.client import Delivery
    from tarry.message.receipt import Receipt

LedgerFile = Annotated[
    Path | None,
    typer.Option("--ledger", metavar="FILE", help="Append a line of JSON for each message, for tarry audit."),
]


class Ledger(Protocol):
    """Destination of rows."""

    def accepted(self, topic: str, receipts: Iterable[Receipt], *, asked_ms: int, ttl_ms: int | None) -> None: ...
    def unanswered(self, topic: str, id: str | None) -> None: ...
    def delivered(self, message: Delivery, group: str) -> None: ...


def open_ledger(path: Path | None) -> AbstractContextManager[Ledger]:
    """Open the ledger at a path, to append to it; without a path, one that keeps nothing.

    Raises:
        InvalidArgumentError: it cannot be written.
    """
    if path is None:
        return nullcontext(_NoLedger())
    try:
        return _FileLedger(path.open("a", encoding="utf-8"))
    except OSError as error:
        raise InvalidArgumentError(f"--ledger {path} cannot be written: {error.strerror or error}") from error


class _NoLedger:
    def accepted(self, topic: str, receipts: Iterable[Receipt], *, asked_ms: int, ttl_ms: int | None) -> None:
        pass

    def unanswered(self, topic: str, id: str | None) -> None:
        pass

    def delivered(self, message: Delivery, group: str) -> None:
        pass


class _FileLedger(AbstractContextManager["_FileLedger"]):
    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def accepted(self, topic: str, receipts: Iterable[Receipt], *, asked_ms: int, ttl_ms: int | None) -> None:
        """Answers to one topic. ``asked_ms``: when they were sent, from which a time to live counts."""
        # A message that a key kept, or that a condition stopped at, is in the ledger of whoever sent it.
        now_ms = time.time_ns() // 1_000_000
        ends = {} if ttl_ms is None else {"expire_ms": asked_ms + ttl_ms}
        self._write(
            {"topic": topic, "id": r.id, "seq": r.seq, "due_ms": r.due_ms, "accepted_ms": now_ms, **ends}
            for r in receipts
            if r.outcome not in ("kept", *UNMET)
        )

    def unanswered(self, topic: str, id: str | None) -> None:
        """Add a message that may have been accepted, if it has an id of its own to be known by."""
        if id is not None:
            self._write([{"topic": topic, "id": id, "answered": False}])

    def delivered(self, message: Delivery, group: str) -> None:
        """Add a hand-out."""
        names = ("topic", "id", "seq", "due_ms")
        row = {name: getattr(message, name) for name in names}
        at_ms = message.due_ms + message.lateness_ms
        self._write([{**row, "delivered_ms": at_ms, "group": group, "attempt": message.attempt}])

    def _write(self, rows: Iterable[dict[str, Any]]) -> None:
        self._file.write("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
        self._file.flush()
