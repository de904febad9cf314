"""Decoding HPACK's Huffman code (RFC 7541, section 5.2 and appendix B), a byte a step.

The ``hpack`` library has the code as a state machine that takes half a byte a step. Here two of its steps are one, made
when it is first needed and kept: there are at most 256 states with 256 bytes each. The table is a pure function of the
code, shared by all connections.
"""

from __future__ import annotations

from typing import Final

from hpack.exceptions import HPACKDecodingError
from hpack.huffman_table import HUFFMAN_COMPLETE, HUFFMAN_EMIT_SYMBOL, HUFFMAN_FAIL, HUFFMAN_TABLE

_NIBBLES: Final = 16


class _Steps(dict[int, tuple[int, bytes, int]]):
    """Steps by ``state << 8 | byte``, made on first use.

    A step is the next state (shifted), the output, and a flag: not 0 if a text may end there.
    """

    def __missing__(self, key: int) -> tuple[int, bytes, int]:
        state, out, flags = key >> 8, b"", 0
        for nibble in (key >> 4 & 0xF, key & 0xF):
            state, flags, symbol = HUFFMAN_TABLE[state * _NIBBLES + nibble]
            if flags & HUFFMAN_FAIL:
                raise HPACKDecodingError("Huffman's code is damaged")
            if flags & HUFFMAN_EMIT_SYMBOL:
                out += bytes((symbol,))
        step = self[key] = state << 8, out, flags & HUFFMAN_COMPLETE
        return step


_steps: Final = _Steps()


def decode_huffman(text: bytes) -> bytes:
    """Return the plain text.

    Raises HPACKDecodingError: an invalid code, EOS, or padding that is longer than seven bits or not all ones.
    """
    steps, state, whole = _steps, 0, 1
    parts: list[bytes] = []
    for byte in text:
        state, part, whole = steps[state | byte]
        parts.append(part)
    if not whole:
        raise HPACKDecodingError("Huffman's code is cut off")
    return b"".join(parts)
