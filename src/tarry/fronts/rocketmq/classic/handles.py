"""Handles of popped messages: the property ``POP_CK``, which clients read and give back to settle.

::

    first offset · pop time (ms) · invisible time (ms) · revive queue · 0 · broker · queue · offset

with blanks between them. Clients and proxies read the times and the broker's name, and rebuild the rest for a
batch of acknowledgements, or after they have changed the time. The broker's lease of 62 bits is in the two numbers that
they do not interpret: its lower half is the revive queue, its upper half the queue. Source: ``ExtraInfoUtil``.
"""

from __future__ import annotations

from typing import NamedTuple

from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode

_HALF_BITS = 31
_HALF_MASK = (1 << _HALF_BITS) - 1
_PARTS = 8
_NUMBERS = (0, 1, 2, 3, 6, 7)
_ANY_TOPIC = "0"
"""Stands for the topic itself, rather than one of its retries."""


class PopHandle(NamedTuple):
    """A delivery: the lease, and the message's offset in its topic's queue."""

    lease: int
    offset: int


def pop_handle(broker: str, handle: PopHandle, first_offset: int, pop_ms: int, invisible_ms: int) -> str:
    """Return the text for a client. ``first_offset``: the lowest of those popped together."""
    upper, lower = split_lease(handle.lease)
    return f"{first_offset} {pop_ms} {invisible_ms} {lower} {_ANY_TOPIC} {broker} {upper} {handle.offset}"


def read_pop_handle(text: str) -> PopHandle:
    """Read a handle from a client's text.

    Raises:
        RequestRefused: INVALID_PARAMETER: it is no handle.
    """
    parts = text.split(" ")
    valid = len(parts) == _PARTS and all(_is_number(parts[place]) for place in _NUMBERS)
    if not valid:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER, f"extraInfo is {text!r:.200}; allowed: POP_CK of a message that was popped"
        )
    return PopHandle(join_lease(int(parts[6]), int(parts[3])), int(parts[7]))


def split_lease(lease: int) -> tuple[int, int]:
    """Return the upper and the lower half of a lease."""
    return lease >> _HALF_BITS, lease & _HALF_MASK


def join_lease(upper: int, lower: int) -> int:
    """Return the lease with these halves; for other numbers, a lease that nobody holds."""
    return ((upper & _HALF_MASK) << _HALF_BITS) | (lower & _HALF_MASK)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19
