"""Header blocks to fields: an HPACK decoder (RFC 7541) on the ``hpack`` library's tables.

The library's own ``Decoder`` slices, wraps and logs at each field, which costs more than the rest of a call. This one
walks a block once, on the library's :class:`HeaderTable`; a property test holds that both give the same fields, the
same table, and refuse the same blocks.

What a block that does not change the dynamic table means depends on its bytes and on the table alone.
``table_unchanged`` tells whether the last block was such a one, and ``table_version`` grows with each change of the
table: together they are what a cache of whole header blocks needs.
"""

from __future__ import annotations

from typing import Final

from hpack.exceptions import HPACKError
from hpack.table import HeaderTable

from loopgrpc.frames import ConnectionFault, ErrorCode
from loopgrpc.huffman import decode_huffman

Field = tuple[bytes, bytes]
"""The name and the value of a header field."""
TABLE_BYTES: Final = 4_096
"""The size of the dynamic table that RFC 9113 starts with; this server announces no other."""
FIELD_BYTES: Final = 32
"""What a field counts beyond its name and value, RFC 7541, section 4.1."""

_STATIC_TABLE: Final[tuple[Field, ...]] = HeaderTable.STATIC_TABLE
_STATIC_COUNT: Final = len(_STATIC_TABLE)
_INTEGER_BYTES_MAX: Final = 5
"""Bytes of an integer after its prefix: enough for any length that fits in a block."""


class HpackDecoder:
    """The decoder of one connection: ``table`` is right only if all its header blocks come here, in their order."""

    __slots__ = ("_list_bytes_max", "_table", "list_bytes", "table_unchanged", "table_version")

    def __init__(self, table: HeaderTable, list_bytes_max: int) -> None:
        self._table = table
        self._list_bytes_max = list_bytes_max
        self.table_version = 0
        self.table_unchanged = True
        self.list_bytes = 0
        """What the fields of the last block count towards the limit of a header list, RFC 9113, section 6.5.2."""

    def decode(self, block: bytes) -> list[Field]:
        """The fields of a whole block, names and values as they were sent.

        Raises ConnectionFault: COMPRESSION_ERROR for a block that is damaged, ENHANCE_YOUR_CALM for fields of more than
        ``list_bytes_max`` together. After either the table is not the peer's any more: nothing else may be decoded.
        """
        before = self.table_version
        try:
            fields = self._decode(block)
        except (HPACKError, IndexError) as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, f"a header block is damaged: {error}") from error
        self.table_unchanged = before == self.table_version
        return fields

    def _decode(self, block: bytes) -> list[Field]:
        # One long loop: a function for each kind of field would cost more than what it does.
        fields: list[Field] = []
        size, at, end = 0, 0, len(block)
        dynamic = self._table.dynamic_entries  # newest first; an index beyond it raises IndexError
        while at < end:
            first = block[at]
            at += 1
            if first & 0x80:
                index = first & 0x7F
                if index == 0x7F:
                    index, at = _read_integer(block, at, 0x7F)
                if index > _STATIC_COUNT:
                    field = dynamic[index - _STATIC_COUNT - 1]
                elif index:
                    field = _STATIC_TABLE[index - 1]
                else:
                    raise HPACKError("a field with index 0")
            elif first & 0x60 == 0x20:
                if fields:
                    raise HPACKError("a table size after a field")
                at = self._resize_table(block, at, first)
                continue
            else:
                mask = 0x3F if first & 0x40 else 0x0F
                index = first & mask
                if index == mask:
                    index, at = _read_integer(block, at, mask)
                if index:
                    name = (_STATIC_TABLE[index - 1] if index <= _STATIC_COUNT else dynamic[index - _STATIC_COUNT - 1])[
                        0
                    ]
                else:
                    name, at = _read_string(block, at)
                value, at = _read_string(block, at)
                field = (name, value)
                if first & 0x40:
                    self._table.add(name, value)
                    self.table_version += 1
            fields.append(field)
            size += len(field[0]) + len(field[1]) + FIELD_BYTES
            if size > self._list_bytes_max:
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"fields of more than {self._list_bytes_max} bytes")
        self.list_bytes = size
        return fields

    def _resize_table(self, block: bytes, at: int, first: int) -> int:
        size = first & 0x1F
        if size == 0x1F:
            size, at = _read_integer(block, at, 0x1F)
        if size > TABLE_BYTES:
            raise HPACKError(f"a table of {size} bytes; at most {TABLE_BYTES}")
        self._table.maxsize = size
        self.table_version += 1
        return at


def _read_integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    """The rest of an integer whose prefix was full, RFC 7541, section 5.1, and the place after it."""
    number, shift = prefix, 0
    while True:
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift >= 7 * _INTEGER_BYTES_MAX:
            raise HPACKError("an integer that is too long")


def _read_string(block: bytes, at: int) -> tuple[bytes, int]:
    """A string literal, RFC 7541, section 5.2, and the place after it."""
    first = block[at]
    at += 1
    length = first & 0x7F
    if length == 0x7F:
        length, at = _read_integer(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise HPACKError("a string that ends after its block")
    text = block[at:end]
    return decode_huffman(text) if first & 0x80 else text, end
