"""A block in which root, too, is held by the modes of files."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION_3 = 0x20080522
_PASSING_MODES = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (capabilities(7))."""


@contextmanager
def held_by_modes() -> Iterator[None]:
    """Drop what lets root's thread pass over modes, for the block; others than root have nothing to drop."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    _call(libc.capget, header, sets)
    before = sets[0]
    sets[0] = before & ~_PASSING_MODES
    _call(libc.capset, header, sets)
    try:
        yield
    finally:
        sets[0] = before
        _call(libc.capset, header, sets)


def _call(function: ctypes._NamedFuncPointer, *arguments: object) -> None:
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
