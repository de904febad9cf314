"""A check of the record files that RocksDB reads when it opens: its logs and its MANIFEST.

RocksDB 9.3 and later loop forever at a record of one of the types that only recycled or time-stamped logs have
(RocksDB's issue 13333), and one flipped bit turns an ordinary type into such a one. A database with such a record is
not opened. RocksDB finds all other damage by its checksums.
"""

from __future__ import annotations

from pathlib import Path

BLOCK_BYTES = 32_768
HEADER_BYTES = 7  # u32 crc, u16 length, u8 type; a record does not cross the end of a block
ENDLESS_TYPES = frozenset((5, 6, 7, 8, 11))


def find_endless_record(directory: Path) -> str | None:
    """Describe the first record, by file and offset, at which RocksDB would loop forever; None if none."""
    for path in sorted([*directory.glob("*.log"), *directory.glob("MANIFEST-*")]):
        offset = _first_endless(path.read_bytes())
        if offset is not None:
            return f"{path} at offset {offset}: the record's type is damaged"
    return None


def _first_endless(content: bytes) -> int | None:
    # Block by block, as RocksDB reads: where a record's length is damaged, it goes on with the next block.
    for block in range(0, len(content), BLOCK_BYTES):
        at, end = block, min(block + BLOCK_BYTES, len(content))
        while at + HEADER_BYTES <= end:
            if content[at + 6] in ENDLESS_TYPES:
                return at
            at += HEADER_BYTES + int.from_bytes(content[at + 4 : at + 6], "little")
    return None
