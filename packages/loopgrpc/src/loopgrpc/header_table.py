"""HPACK's static and dynamic tables: the fields that a header block may name by a number.

The peer's blocks fill the dynamic table (RFC 7541, section 2.3). Both are one list, so that a field takes one lookup; a
newer field is before an older one. A property test checks that the dynamic part equals that of the ``hpack`` library.
"""

from __future__ import annotations

from typing import Final

from hpack.table import HeaderTable as LibraryTable

Field = tuple[bytes, bytes]
"""The name and the value of a header field."""
FIELD_BYTES: Final = 32
"""Bytes that a field counts beyond its name and value (RFC 7541, section 4.1)."""
TABLE_BYTES: Final = 4_096
"""Initial size of the dynamic table in RFC 9113; this server announces no other."""

_STATIC: Final[tuple[Field, ...]] = LibraryTable.STATIC_TABLE
_DYNAMIC: Final = len(_STATIC) + 1
"""The number of the newest dynamic field."""


class HeaderTable:
    """The table of one connection's peer."""

    __slots__ = ("_bytes", "_bytes_max", "fields", "sizes", "version")

    def __init__(self) -> None:
        self.fields: list[Field] = [(b"", b""), *_STATIC]
        """Fields by their numbers; there is none of number 0. Read-only for others."""
        self.sizes = [len(name) + len(value) + FIELD_BYTES for name, value in self.fields]
        """Size of each field as it counts. Read-only for others."""
        self.version = 0
        """A number that grows with each change."""
        self._bytes = 0
        self._bytes_max = TABLE_BYTES

    @property
    def dynamic(self) -> list[Field]:
        """The dynamic fields, the newest first."""
        return self.fields[_DYNAMIC:]

    def add(self, field: Field) -> None:
        """Make room for a field and add it.

        A field larger than the table only empties it (section 4.4).
        """
        self.version += 1
        size = len(field[0]) + len(field[1]) + FIELD_BYTES
        self._bytes += size
        self.fields.insert(_DYNAMIC, field)
        self.sizes.insert(_DYNAMIC, size)
        if self._bytes > self._bytes_max:
            self._shrink()

    def resize(self, bytes_max: int) -> None:
        """Set the size that the peer chose for its table."""
        self.version += 1
        self._bytes_max = bytes_max
        self._shrink()

    def _shrink(self) -> None:
        while self._bytes > self._bytes_max:
            self.fields.pop()
            self._bytes -= self.sizes.pop()
