"""A bound for what Arrow's C++ allocates by itself, above all to unpack batches that come compressed.

A few kilobytes of a compressed batch can say that they are gigabytes, and Arrow unpacks a batch of Flight before
anybody is asked. pyarrow has no limit for that, but what it unpacks comes from the default memory pool of C++, whose
allocator (mimalloc) can be told to have so much memory and no more: then a batch that is larger fails to be read, at
once and with nothing allocated. What pyarrow itself is asked for (columns, computing) comes from the system's allocator
and has no part in it; neither has what comes uncompressed, which is never copied there.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tarry.base.back_off import BackOff
from tarry.base.errors import InvalidArgumentError

log = logging.getLogger(__name__)

T = TypeVar("T")

UNPACKED_BYTES_MAX = 128 << 20
"""Bytes that all compressed batches under way may unpack to, beside two of the largest bodies."""
WAIT_S_MAX = 30.0
_BACKEND = "ARROW_DEFAULT_MEMORY_POOL"
_PROBE_BYTES = 1 << 20


def bound_default_pool(body_bytes_max: int) -> int | None:
    """Bound Arrow's default memory pool in this process, and return the bound in bytes.

    To be called before pyarrow is imported. None: it cannot be bounded, since pyarrow is imported already or has no
    mimalloc, or since ``ARROW_DEFAULT_MEMORY_POOL`` says what is wanted.

    Raises:
        InvalidArgumentError: the system does not give that much memory.
    """
    if _BACKEND in os.environ or "pyarrow" in sys.modules:
        return None
    bound_mib = (UNPACKED_BYTES_MAX + 2 * body_bytes_max) >> 20
    settings = {
        _BACKEND: "mimalloc",
        "MIMALLOC_DISALLOW_OS_ALLOC": "1",
        "MIMALLOC_RESERVE_OS_MEMORY": f"{bound_mib}M",
    }
    os.environ.update(settings)
    try:
        # Read while it is loaded, once and for all; libraries that come later, and other processes, must not see it.
        import pyarrow as pa
    finally:
        for name in settings:
            del os.environ[name]
        os.environ[_BACKEND] = "system"
    pool = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    if pool.backend_name != "mimalloc":
        return None
    bound = bound_mib << 20
    try:
        pa.allocate_buffer(_PROBE_BYTES, memory_pool=pool)
    except pa.ArrowMemoryError:
        raise InvalidArgumentError(
            f"{bound} bytes of memory could not be reserved for compressed batches; allowed: more memory, or the "
            f"environment's {_BACKEND}=system, by which they have no bound"
        ) from None
    try:
        pa.allocate_buffer(bound + 1, memory_pool=pool)
    except pa.ArrowMemoryError:
        return bound
    return None


def unpacking_pool() -> Any:
    """Return the pool for what strangers' batches unpack to: the bounded one, where there is one.

    None: pyarrow has no such pool.
    """
    import pyarrow as pa

    try:
        return pa.mimalloc_memory_pool()  # the default of C++, where it has a bound
    except NotImplementedError:
        return None


def when_memory(read: Callable[[], T]) -> T:
    """Return ``read()``, which takes a little of that memory; try again while others have all of it.

    Raises:
        Exception: whatever it raises for another reason, or still after half a minute.
    """
    import pyarrow as pa

    end_s = time.monotonic() + WAIT_S_MAX
    back_off = BackOff(0.005, 1.0)
    while True:
        try:
            return read()
        except pa.ArrowMemoryError as error:
            if time.monotonic() >= end_s:
                raise
            log.warning("no memory for what is to be read, trying again: %s", error)
        time.sleep(back_off.fail())
