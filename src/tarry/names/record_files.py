"""The files of records that RocksDB reads when it opens, looked through before: its logs and its MANIFEST.

RocksDB 9.3 and later loop for ever at a record of one of the types that only recycled or time-stamped logs have
(RocksDB's issue 13333), and one flipped bit makes such a type of an ordinary one. A database is not given to it then.
All other damage it finds by its checksums.
"""

from __future__ import annotations

from pathlib import Path

BLOCK_BYTES = 32_768
HEADER_BYTES = 7  # u32 crc, u16 length, u8 type; a record does not cross the end of a block
ENDLESS_TYPES = frozenset((5, 6, 7, 8, 11))


def find_endless_record(directory: Path) -> str | None:
    """The file and the offset of a record that RocksDB would not come to an end with, if there is one."""
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
