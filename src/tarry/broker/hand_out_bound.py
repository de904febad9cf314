"""The hand-out bound: a due time, durable before anything that is due after it is handed out.

A due message is handed to consumers before the ready log has it on disk (docs/decisions/0002); the log may be behind by
as long as the disk takes. After a crash this bound says which messages a consumer may have had, so that nobody is told
that they were cancelled in time (``wheel/handed.py``). It does not depend on a correct clock: a hand-out is due no
later than the bound that was durable then, whatever the clock says after the restart.

Where machines share the logs, the bound comes from their clock (:mod:`tarry.broker.leased_bound`); else from a file:
it is moved ahead some seconds at a time by the thread that makes checkpoints, so no message waits for an fsync.
The exception is the first message after a silence, or after a leap of the clock: :meth:`FileBound.cover` moves the
bound for it.

The file is overwritten in place, in two slots by turns. That needs no free space, so consumers are served on a full
disk. A torn write leaves the other slot intact, and its bound still holds, as nothing was handed out beyond it yet. The
format is in ``docs/formats.md``.
"""

from __future__ import annotations

import logging
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tarry.base.errors import CorruptError
from tarry.base.types import NEVER_MS
from tarry.log.files import Files
from tarry.log.format_version import is_newer, newer_format

log = logging.getLogger(__name__)

FILE = "handed"
AHEAD_MS = 5_000
"""Distance ahead of the clock to which the bound is moved."""
_MAGIC = b"THND"
VERSION = 1
_RECORD = struct.Struct("<4sIQq")  # magic, version, number of the write, bound
_CRC = struct.Struct("<I")
_RECORD_BYTES = _RECORD.size + _CRC.size
_SLOTS_AT = (0, 4096)
"""A page apart: no disk writes both at once."""
FILE_BYTES = 8192
_LOOKS = 3


def read_bound(path: Path) -> tuple[int, int, bool] | None:
    """Return number and bound of the newest write, and whether the other slot is sound.

    A slot is sound if its record is whole, or if it was never written. None if there is no file.

    Raises:
        CorruptError: neither slot is whole, or a newer program wrote one.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if is_newer(version := version_of(content), (VERSION,)):
        raise CorruptError(newer_format(str(path), version, (VERSION,)))
    records = [record for slot in _slots_of(content) if (record := _decoded(slot)) is not None]
    if len(content) != FILE_BYTES or not records:
        raise CorruptError(f"{path} is damaged, or of another version: neither of its two records is whole")
    return *max(records), _are_whole(content)


def check_bound(path: Path) -> None:
    """Check the file for damage, also for damage despite which a broker would go on.

    Raises:
        CorruptError: it is damaged.
    """
    read_whole(path)
    read_bound(path)


def read_whole(path: Path) -> bytes:
    """Return the content of the file between two writes.

    Raises:
        CorruptError: it is damaged.
    """
    for _ in range(_LOOKS):  # a running broker may be writing
        content = path.read_bytes()
        beside = content[_RECORD_BYTES : _SLOTS_AT[1]] + content[_SLOTS_AT[1] + _RECORD_BYTES :]
        if not any(beside) and _are_whole(content):
            return content
    raise CorruptError(f"{path} is damaged: a record is not whole, or there is something beside the records")


def _slots_of(content: bytes) -> list[bytes]:
    return [content[at : at + _RECORD_BYTES] for at in _SLOTS_AT]


def _are_whole(content: bytes) -> bool:
    """Return whether each slot has a whole record, or was never written."""
    return all(_decoded(slot) is not None or not any(slot) for slot in _slots_of(content))


def version_of(content: bytes) -> int | None:
    """Return the highest format of the records that are whole; None: none is."""
    return max((each[0] for slot in _slots_of(content) if (each := _whole(slot)) is not None), default=None)


def _whole(slot: bytes) -> tuple[int, int, int] | None:
    """Return version, number and bound of a record, if it is whole."""
    head, crc = slot[: _RECORD.size], slot[_RECORD.size :]
    if len(slot) != _RECORD_BYTES or crc != _CRC.pack(zlib.crc32(head)):
        return None
    magic, version, number, until_ms = _RECORD.unpack(head)
    return (version, number, until_ms) if magic == _MAGIC else None


def _decoded(slot: bytes) -> tuple[int, int] | None:
    found = _whole(slot)
    return found[1:] if found is not None and found[0] == VERSION else None


def _encoded(number: int, until_ms: int) -> bytes:
    head = _RECORD.pack(_MAGIC, VERSION, number, until_ms)
    return head + _CRC.pack(zlib.crc32(head))


def _first_content(until_ms: int) -> bytes:
    record = _encoded(1, until_ms)
    return bytes(_SLOTS_AT[1]) + record + bytes(FILE_BYTES - _SLOTS_AT[1] - len(record))


class HandOutBound(Protocol):
    """The bound of hand-outs of this run: nothing that is due after :attr:`until_ms` may be handed out."""

    @property
    def left_ms(self) -> int:
        """The bound that the last run left; NEVER_MS if the ready log has all that was handed out."""
        ...

    @property
    def until_ms(self) -> int:
        """The latest due time that may be handed out now."""
        ...

    def cover(self, now_ms: int) -> None:
        """Move the bound, if necessary and possible, so that messages due by now may be handed out."""
        ...

    def keep_ahead(self, now_ms: int, handed_ms: Callable[[], int]) -> None:
        """Move the bound on before it is reached; see :meth:`FileBound.keep_ahead`."""
        ...

    def release(self, fired_until_ms: int) -> None:
        """Note that the ready log durably has all that is due before ``fired_until_ms``."""
        ...

    def close(self, *, is_durable: bool) -> None:
        """Close it; ``is_durable``: the ready log has all that was handed out, and nothing more will be."""
        ...


class FileBound:
    """The bound of hand-outs, in memory and on disk.

    ``left_ms`` is the bound that the last run left: messages due up to it may have been handed out. It is NEVER_MS if
    the ready log has all that were. :attr:`until_ms` is the bound of this run: nothing that is due after it may be
    handed out.

    Args:
        is_new: the data directory has never had a message.
        ahead_ms: how far ahead the bound is moved at once.

    Raises:
        CorruptError: the file is damaged.
    """

    def __init__(self, files: Files, data: Path, now_ms: int, *, is_new: bool, ahead_ms: int = AHEAD_MS) -> None:
        path = data / FILE
        self.ahead_ms = ahead_ms
        self.until_ms = NEVER_MS
        found = read_bound(path)
        self._number, self.left_ms, is_whole = found if found is not None else (0, NEVER_MS, True)
        if (found is None and not is_new) or not is_whole:
            # The file is of a version without the bound, or its last write was torn, or was damaged since: use the
            # clock.
            self.left_ms = max(self.left_ms, now_ms + ahead_ms)
        self._floor_ms = self.left_ms
        self._lock = threading.Lock()
        if found is None:
            self._number = 1
            files.replace(path, _first_content(self.left_ms))
        self._file = files.open_overwrite(path)

    def cover(self, now_ms: int) -> None:
        """Move the bound, if necessary, so that messages due by now may be handed out.

        Raises:
            OSError: the disk does not allow it.
        """
        with self._lock:
            if self.until_ms < now_ms:
                self._move(now_ms + self.ahead_ms)

    def keep_ahead(self, now_ms: int, handed_ms: Callable[[], int]) -> None:
        """Move the bound on before it is reached, or back if a wrong clock moved it far ahead.

        It is moved back no further than ``handed_ms``, the latest due time that was handed out.

        Raises:
            OSError: the disk does not allow it.
        """
        with self._lock:
            left_ms = self.until_ms - now_ms
            if 2 * left_ms < self.ahead_ms:
                self._move(now_ms + self.ahead_ms)
            elif left_ms > 2 * self.ahead_ms:
                # First in memory: from then on nothing beyond it is handed out, and `handed_ms` covers what was.
                former, self.until_ms = self.until_ms, now_ms + self.ahead_ms
                lowest = max(self.until_ms, self._floor_ms, handed_ms())
                if lowest < former:
                    self._move(lowest)
                else:
                    self.until_ms = former

    def release(self, fired_until_ms: int) -> None:
        """Note that the ready log durably has all messages due before this that were there at the start."""
        if self.left_ms < fired_until_ms:
            self._floor_ms = NEVER_MS

    def close(self, *, is_durable: bool) -> None:
        """Close the file.

        ``is_durable``: the ready log durably has all that was handed out, and nothing more will be handed out.
        """
        with self._lock:
            try:
                if is_durable:
                    self._move(NEVER_MS)
            finally:
                self._file.close()

    def _move(self, until_ms: int) -> None:
        until_ms = max(until_ms, self._floor_ms)
        self._write(until_ms)
        self.until_ms = until_ms

    def _write(self, until_ms: int) -> None:
        self._number += 1
        self._file.write(_SLOTS_AT[self._number % 2], _encoded(self._number, until_ms))
