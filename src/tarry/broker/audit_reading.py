"""Reads the audit log, the newest lines first, also while it is written and without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tarry.api.audit import AuditRecord
from tarry.api.audited import OPERATION_NAMES, is_about
from tarry.api.operation import known
from tarry.api.operations import ReadAuditLog
from tarry.base.errors import InvalidArgumentError
from tarry.broker.audit_log import DIRECTORY
from tarry.log.chain import ChainedLine, lines_of
from tarry.log.segment import SegmentReader, list_segments, segment_path

ANSWER_BYTES_MAX = 8 << 20
"""Lines of one answer, as they are on disk; the oldest are left out."""


def read_lines(data: Path, asked: ReadAuditLog) -> list[AuditRecord]:
    """Return the newest lines that are asked for, oldest first.

    Damage ends what is read of a file: ``tarry verify`` tells of it.

    Raises:
        InvalidArgumentError: no line is of such an operation.
    """
    if asked.operation is not None and asked.operation not in OPERATION_NAMES:
        raise InvalidArgumentError(f"operation is {asked.operation!r:.80}; allowed: {', '.join(OPERATION_NAMES)}")
    found: list[AuditRecord] = []
    size = 0
    for line in _newest_first(data, asked):
        size += len(line.content)
        if found and size > ANSWER_BYTES_MAX:
            break
        found.append(known(AuditRecord, line.fields))
        if len(found) == asked.limit:
            break
    return found[::-1]


def _newest_first(data: Path, asked: ReadAuditLog) -> Iterator[ChainedLine]:
    directory = data / DIRECTORY
    for base in reversed(list_segments(directory)):
        if asked.before is not None and base >= asked.before:
            continue
        try:
            with SegmentReader(segment_path(directory, base)) as reader:
                lines = [line for line in lines_of(reader) if _is_asked_for(line.fields, asked)]
                first = next(reader.headers(), None)
        except FileNotFoundError:
            return  # deleted meanwhile, as are those before it
        yield from reversed(lines)
        if asked.since_ms is not None and first is not None and first.header.due_min_ms < asked.since_ms:
            return  # files before it are older


def _is_asked_for(fields: Any, asked: ReadAuditLog) -> bool:
    return (
        (asked.since_ms is None or fields["at_ms"] >= asked.since_ms)
        and (asked.until_ms is None or fields["at_ms"] < asked.until_ms)
        and asked.who in (None, fields.get("who"))
        and (asked.identity in (None, fields.get("who")) or is_about(asked.identity, fields))
        and asked.operation in (None, fields["operation"])
        and asked.outcome in (None, fields["outcome"])
        and (asked.before is None or fields["n"] < asked.before)
    )
