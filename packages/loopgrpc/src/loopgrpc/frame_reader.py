"""Parser from bytes, cut anywhere, to the client's preface and frames.

Source: RFC 9113, sections 3.4 and 4.1.
"""

from __future__ import annotations

from collections.abc import Callable

from loopgrpc.frames import (
    FRAME_BYTES_MAX,
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    PREFACE,
    STREAM_MAX,
    ConnectionFault,
    ErrorCode,
)


class FrameReader:
    """The frames of one connection.

    Each is passed to ``on_frame`` as its type, flags, stream and payload.
    """

    __slots__ = ("_incomplete", "_needed_bytes", "_on_frame", "_preface_expected", "_stopped")

    def __init__(self, on_frame: Callable[[int, int, int, bytes], None]) -> None:
        self._on_frame = on_frame
        self._incomplete = bytearray()
        self._needed_bytes = len(PREFACE)
        """Length that ``_incomplete`` has to reach before parsing can go on."""
        self._preface_expected = True
        self._stopped = False

    def stop(self) -> None:
        """Hand over no more frames, not even those that were read already."""
        self._stopped = True

    def feed(self, data: bytes) -> None:
        """Pass on all frames that ``data`` completes.

        Raises ConnectionFault: there is no preface, or a frame is too large. Exceptions of ``on_frame`` pass through.
        """
        incomplete = self._incomplete
        if incomplete:
            incomplete += data
            if len(incomplete) < self._needed_bytes:
                return
            data = bytes(incomplete)
            incomplete.clear()
        at, end = 0, len(data)
        if self._preface_expected:
            at = self._read_preface(data)
        while end - at >= FRAME_HEADER_BYTES and not self._stopped:
            word, flags, stream_id = FRAME_HEADER.unpack_from(data, at)
            start = at + FRAME_HEADER_BYTES
            stop = start + (word >> 8)
            if stop - start > FRAME_BYTES_MAX:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {stop - start} bytes; at most 16384")
            if stop > end:
                self._needed_bytes = stop - at
                break
            at = stop
            self._on_frame(word & 0xFF, flags, stream_id & STREAM_MAX, data[start:stop])
        else:
            self._needed_bytes = FRAME_HEADER_BYTES
        if at < end and not self._stopped:
            incomplete += data[at:] if at else data

    def _read_preface(self, data: bytes) -> int:
        """Check the preface and return the offset of the first frame."""
        if data[: len(PREFACE)] != PREFACE[: len(data)]:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "this is HTTP/2 alone, by prior knowledge or ALPN")
        if len(data) < len(PREFACE):
            self._incomplete += data
            return len(data)
        self._preface_expected = False
        return len(PREFACE)
