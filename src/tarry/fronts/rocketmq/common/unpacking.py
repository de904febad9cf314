"""Unpacking of compressed bodies, with one limit for all bodies of a request.

Some kilobytes may become gigabytes. A body that takes longer than a moment is not unpacked on the event loop.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from loopgrpc import ByteBudget
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.threads import RunInThread

REQUEST_BYTES_MAX = 32 << 20
"""Limit of all unpacked bodies of a request together; one body may always have a body's full size."""
LOOP_BYTES_MAX = 1 << 20
"""Bodies beyond this are unpacked in a thread."""
UNPACKED_BYTES_MAX = 256 << 20
"""Limit of all requests together that are unpacked in threads, until they are answered."""
GZIP, LZ4, ZSTD = "gzip", "lz4", "zstd"
T = TypeVar("T")


class _TooMuchForLoopError(Exception):
    """Raised if the bodies are to be unpacked in a thread."""


class Unpacker:
    """Unpacks the bodies of one request.

    ``loop_bytes_max``: it stops above this size; None if it is in a thread.
    """

    def __init__(self, body_bytes_max: int, loop_bytes_max: int | None = LOOP_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self._request_bytes_max = max(REQUEST_BYTES_MAX, body_bytes_max)
        self._loop_bytes_max = loop_bytes_max
        self._unpacked = 0

    def unpack(self, body: bytes, codec: str) -> bytes:
        """Unpack a body; one of gzip may be zlib's, which some clients send under its name.

        The result may have one byte more than a body may, which :func:`tarry.fronts.rocketmq.common.draft.check_body`
        refuses. It never has more, since a decompression bomb does not tell its size.

        Raises:
            Refusal: MESSAGE_CORRUPTED: it is none of that codec. MESSAGE_BODY_TOO_LARGE: those of the request have too
                many bytes together.
        """
        bytes_max = self._body_bytes_max
        if self._loop_bytes_max is not None:
            bytes_max = min(bytes_max, self._loop_bytes_max - self._unpacked)
        plain = _of_gzip(body, bytes_max) if codec == GZIP else _of_arrow(body, codec, bytes_max)
        if len(plain) > bytes_max and bytes_max < self._body_bytes_max:
            raise _TooMuchForLoopError
        self._unpacked += len(plain)
        if self._unpacked > self._request_bytes_max:
            raise Refusal(
                Code.MESSAGE_BODY_TOO_LARGE,
                f"the bodies of the request have more than {self._unpacked - 1} bytes when they are unpacked; "
                f"allowed: {self._request_bytes_max} together",
            )
        return plain


class Unpacking:
    """Handles requests that may have compressed bodies. On the event loop's thread."""

    def __init__(self, body_bytes_max: int, run_in_thread: RunInThread, bytes_max: int = UNPACKED_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self._reserved = max(REQUEST_BYTES_MAX, body_bytes_max)
        self._run_in_thread = run_in_thread
        self._budget = ByteBudget("unpacked bodies", max(bytes_max, 2 * self._reserved))

    def try_here(self, make: Callable[[Unpacker], T]) -> T | None:
        """Return the result of ``make``; None if :meth:`in_thread` is needed.

        Raises:
            Refusal: as :meth:`Unpacker.unpack`, or by ``make``.
        """
        try:
            return make(Unpacker(self._body_bytes_max))
        except _TooMuchForLoopError:
            return None

    async def in_thread(self, make: Callable[[Unpacker], T], peer: str) -> tuple[T, Callable[[], None]]:
        """Call ``make`` in a thread on behalf of a peer address; return its result, and a release callback.

        The callback is to be called, once or more, when the result is not held any more.

        Raises:
            Refusal: as :meth:`try_here`; TOO_MANY_REQUESTS: too much of others is held.
        """
        if (refusal := self._budget.take(self._reserved, peer)) is not None:
            raise Refusal(Code.TOO_MANY_REQUESTS, f"{refusal}; try again later")
        release = _Once(lambda: self._budget.give_back(self._reserved, peer))
        work = self._run_in_thread(lambda: make(Unpacker(self._body_bytes_max, None)))
        try:
            return await asyncio.shield(work), release
        except BaseException:
            # If the request was cancelled, the thread goes on.
            work.add_done_callback(lambda _: release())
            raise


class _Once:
    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def __call__(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


def _of_gzip(body: bytes, bytes_max: int) -> bytes:
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = unpack.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise Refusal(Code.MESSAGE_CORRUPTED, f"the body's encoding is GZIP, and it is none: {error}") from error
    if len(plain) <= bytes_max and not unpack.eof:
        raise Refusal(Code.MESSAGE_CORRUPTED, f"the body is {len(body)} bytes of gzip that ends too early")
    return plain


def _of_arrow(body: bytes, codec: str, bytes_max: int) -> bytes:
    """Unpack LZ4 frames or Zstandard."""
    try:
        with pa.input_stream(pa.BufferReader(body), compression=codec) as stream:
            return bytes(stream.read(bytes_max + 1))
    except (OSError, pa.ArrowException) as error:
        raise Refusal(Code.MESSAGE_CORRUPTED, f"the body is no {codec}: {error}") from error
