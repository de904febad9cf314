"""Footers of the store's Parquet files: checksums verified, and the last used kept for the process.

Parquet has checksums for pages and none for the footer or the headers of pages, and its reader ends the process at some
damaged footers. So the name of a file ends with two CRC-32: of all before its footer, and of its footer. The second is
verified whenever a footer is read, the first when whole files are checked, which then need not be decoded. A file of
another name (an older one, with the second alone; a foreign writer's) is read without checking.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tarry.base.errors import CorruptError
from tarry.base.lru_cache import LruCache
from tarry.store.place import Place

BYTES_MAX = 2 << 20
COUNTS_BYTES_MAX = 16 << 20
BYTES_NEAR = 64 << 10
"""Bytes that are read at first, so that most footers need one read."""
_TAIL_BYTES = 8
_CHECKSUMS = re.compile(r"-[0-9a-f]{32}(?:-([0-9a-f]{8}))?-([0-9a-f]{8})\.parquet$")


def _size(footer: Any) -> int:
    return int(footer.serialized_size)


class Footers:
    """Footers of files, by their paths. A file of the store never changes, so an entry never goes stale."""

    def __init__(self, bytes_max: int) -> None:
        self._cache: LruCache[str, Any] = LruCache(bytes_max, _size)
        self.counts: LruCache[str, bytes] = LruCache(COUNTS_BYTES_MAX, len)
        """Counts of due times in footers (``due_counts.py``).

        They are a few kilobytes of a footer that takes milliseconds to read, so those of many more files are kept.
        """

    def get(self, place: Place, path: str) -> Any:
        """Return a file's footer (a ``pyarrow.parquet.FileMetaData``); None: its name has no checksum.

        Raises:
            CorruptError: the footer does not match its checksum. FileNotFoundError, OSError: the file cannot be read.
        """
        footer = self._cache.get(path)
        _, checksum = checksums_in(path)
        if footer is not None or checksum is None:
            return footer
        return _read(place, path, checksum)

    def put(self, path: str, footer: Any) -> None:
        """Keep a footer that was read."""
        self._cache.put(path, footer)

    def clear(self) -> None:
        """Forget all: for tests that change files."""
        self._cache.clear()
        self.counts.clear()


FOOTERS = Footers(BYTES_MAX)
"""The footers of this process.

All readers share them, because a broker's window reader, its queries and Spark's tasks (which begin with nothing but a
path) come to the same files one after the other, and because the process's memory is what must be bounded. They have
only contents of files that never change, so sharing cannot be noticed.
"""


def checksums_of(content: pa.Buffer) -> str:
    """Return the checksums for a whole Parquet file's name: CRC-32 before its footer, and of its footer.

    The footer is its metadata, their length and the magic number.
    """
    end = content.size - _footer_bytes(content)
    return f"{zlib.crc32(content.slice(0, end)):08x}-{zlib.crc32(content.slice(end)):08x}"


def checksums_in(path: str) -> tuple[int | None, int | None]:
    """Return the checksums in a file's name, before the footer and of it; None for a missing one."""
    named = _CHECKSUMS.search(path)
    first, second = named.groups() if named is not None else (None, None)
    return (None if first is None else int(first, 16)), (None if second is None else int(second, 16))


def footer_bytes_at(file: Any) -> int:
    """Return the length of the footer that an open Parquet file states.

    It is more than the file's size if that is no Parquet file.
    """
    size = int(file.size())
    return (
        _footer_bytes(pa.py_buffer(file.read_at(_TAIL_BYTES, size - _TAIL_BYTES))) if size >= _TAIL_BYTES else size + 1
    )


def _footer_bytes(end: pa.Buffer) -> int:
    return int.from_bytes(end.slice(end.size - _TAIL_BYTES, 4).to_pybytes(), "little") + _TAIL_BYTES


def _read(place: Place, path: str, checksum: int) -> Any:
    with place.filesystem.open_input_file(path) as file:
        size = file.size()
        near = file.read_at(min(size, BYTES_NEAR), max(0, size - BYTES_NEAR))
        end = pa.py_buffer(near)
        length = _footer_bytes(end) if end.size >= _TAIL_BYTES else size + 1
        if length > size:
            raise CorruptError(f"{path} is damaged: {size} bytes are no Parquet file")
        if length > end.size:
            end = pa.py_buffer(file.read_at(length, size - length))
    footer = end.slice(end.size - length)
    if zlib.crc32(footer) != checksum:
        raise CorruptError(f"{path} is damaged: the checksum of its footer does not hold")
    return pq.read_metadata(pa.BufferReader(b"PAR1" + footer.to_pybytes()))
