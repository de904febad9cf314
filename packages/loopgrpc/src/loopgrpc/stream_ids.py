"""Facts about a stream that is not open, by its number alone (RFC 9113, section 5.1.1).

Above the last one that the peer opened, streams are idle; below it they are closed. Two small memories tell the rest:
numbers that the peer skipped (they were never opened), and streams that this server reset, whose frames may still be on
their way and are ignored.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

_SKIPPED_RANGES_MAX: Final = 64
_RESETS_SPARE: Final = 64


class StreamIds:
    """The numbers of one connection's streams.

    Some more resets are remembered than there may be streams.
    """

    __slots__ = ("_reset", "_resets_max", "_skipped", "last")

    def __init__(self, streams_max: int) -> None:
        self._skipped: deque[tuple[int, int]] = deque(maxlen=_SKIPPED_RANGES_MAX)
        self._reset: OrderedDict[int, None] = OrderedDict()
        self._resets_max = streams_max + _RESETS_SPARE
        self.last = 0
        """The highest stream that the peer opened."""

    def open(self, stream_id: int) -> None:
        """Note that the peer opens ``stream_id``, which is above ``last``."""
        if stream_id > self.last + 2:
            self._skipped.append((self.last, stream_id))
        self.last = stream_id

    def is_idle(self, stream_id: int) -> bool:
        """Return whether the stream was not opened yet.

        Even numbers are the server's, and this one opens none.
        """
        return stream_id > self.last or stream_id % 2 == 0

    def was_skipped(self, stream_id: int) -> bool:
        """Return whether the peer opened streams before and after this one, but not this one."""
        return any(low < stream_id < high for low, high in self._skipped)

    def was_reset(self, stream_id: int) -> bool:
        """Return whether this server reset the stream lately.

        Frames on it may have been sent before the peer knew.
        """
        return stream_id in self._reset

    def remember_reset(self, stream_id: int) -> None:
        """Note that this server resets the stream."""
        self._reset[stream_id] = None
        if len(self._reset) > self._resets_max:
            self._reset.popitem(last=False)
