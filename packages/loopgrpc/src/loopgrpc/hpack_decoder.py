"""HPACK decoder, from header blocks to fields (RFC 7541).

The ``hpack`` library's ``Decoder`` slices, wraps and logs at each field, which costs more than the rest of a call. This
one walks a block once. Fields named by a number of one byte, as nearly all of a client's are, are taken many at a time.
A property test checks that both give the same fields, the same table, and refuse the same blocks.

The meaning of a block that does not change the dynamic table depends on its bytes and on the table alone.
``table_unchanged`` is true if the last block was of that kind, and ``table_version`` grows with each change of the
table: a cache of whole header blocks needs both.
"""

from __future__ import annotations

import re
from typing import Final

from hpack.exceptions import HPACKError

from loopgrpc.frames import ConnectionFault, ErrorCode
from loopgrpc.header_table import FIELD_BYTES, TABLE_BYTES, Field, HeaderTable
from loopgrpc.huffman import decode_huffman

_INTEGER_BYTES_MAX: Final = 5
"""Bytes of an integer after its prefix: enough for any length that fits in a block."""
_NUMBERED: Final = re.compile(rb"[\x81-\xfe]+")
"""Consecutive fields that are each a number of one byte (section 6.1)."""
_NUMBERS: Final = bytes(byte & 0x7F for byte in range(256))
"""For ``bytes.translate``: from each of those bytes to its number."""


class HpackDecoder:
    """The decoder of one connection.

    ``table`` is right only if all its header blocks come here, in their order.
    """

    __slots__ = ("_list_bytes_max", "_table", "list_bytes", "table_unchanged")

    def __init__(self, table: HeaderTable, list_bytes_max: int) -> None:
        self._table = table
        self._list_bytes_max = list_bytes_max
        self.table_unchanged = True
        self.list_bytes = 0
        """Size of the last block's fields, as counted for the limit (RFC 9113, section 6.5.2)."""

    @property
    def table_version(self) -> int:
        """A number that grows with each change of the table."""
        return self._table.version

    def decode(self, block: bytes) -> list[Field]:
        """Return the fields of a whole block, names and values as they were sent.

        Raises ConnectionFault: COMPRESSION_ERROR for a block that is damaged, ENHANCE_YOUR_CALM for fields of more than
        ``list_bytes_max`` together. After either the table differs from the peer's: nothing else may be decoded.
        """
        before = self._table.version
        try:
            fields = self._decode(block)
        except (HPACKError, IndexError) as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, f"a header block is damaged: {error}") from error
        self.table_unchanged = before == self._table.version
        return fields

    def _decode(self, block: bytes) -> list[Field]:
        # One long loop: a function for each kind of field would cost more than its work.
        fields: list[Field] = []
        size, at, end = 0, 0, len(block)
        known, sizes = self._table.fields, self._table.sizes  # a number beyond them raises IndexError
        while at < end:
            first = block[at]
            if first & 0x80:
                run = _NUMBERED.match(block, at)
                if run is not None:
                    numbers = run[0].translate(_NUMBERS)
                    fields += map(known.__getitem__, numbers)
                    size += sum(map(sizes.__getitem__, numbers))
                    at = run.end()
                else:
                    index, at = _read_integer(block, at + 1, 0x7F) if first == 0xFF else (0, at)
                    if not index:
                        raise HPACKError("a field with index 0")
                    fields.append(known[index])
                    size += sizes[index]
            elif first & 0x60 == 0x20:
                if fields:
                    raise HPACKError("a table size after a field")
                at = self._resize_table(block, at + 1, first)
            else:
                mask = 0x3F if first & 0x40 else 0x0F
                index = first & mask
                at += 1
                if index == mask:
                    index, at = _read_integer(block, at, mask)
                if index:
                    name = known[index][0]
                else:
                    name, at = _read_string(block, at)
                value, at = _read_string(block, at)
                field = (name, value)
                if first & 0x40:
                    self._table.add(field)
                fields.append(field)
                size += len(name) + len(value) + FIELD_BYTES
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
        self._table.resize(size)
        return at


def _read_integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    """Return the rest of an integer whose prefix was full, and the offset after it.

    Source: RFC 7541, section 5.1.
    """
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
    """Return a string literal (RFC 7541, section 5.2) and the offset after it."""
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
