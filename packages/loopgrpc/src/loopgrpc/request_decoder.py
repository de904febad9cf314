"""From a header block to a request, with two caches for the parts that a client's calls share.

A whole header block that did not change the decoder's dynamic table is kept with its request until the table changes:
clients that index all their fields send the same few bytes for each call. Of other blocks, the previous request of the
same method is kept, and only what differs from it is checked.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from loopgrpc.header_table import Field, HeaderTable
from loopgrpc.hpack_decoder import HpackDecoder
from loopgrpc.request import Request, parse_request, parse_similar

_BLOCKS_MAX: Final = 64
_HARD_LIMIT_FACTOR: Final = 4
"""Multiple of the header list's limit where decoding stops; up to it the request gets a 431."""


class RequestDecoder:
    """The header blocks of one connection, all of which have to come here in their order.

    ``methods`` are the paths that have handlers. Previous requests are kept for these only, so that a peer that invents
    paths fills no memory.
    """

    __slots__ = ("_blocks", "_blocks_version", "_decoder", "_header_list_bytes_max", "_methods", "_previous")

    def __init__(self, methods: Container[bytes], header_list_bytes_max: int) -> None:
        self._methods = methods
        self._header_list_bytes_max = header_list_bytes_max
        self._decoder = HpackDecoder(HeaderTable(), _HARD_LIMIT_FACTOR * header_list_bytes_max)
        self._blocks: dict[bytes, Request] = {}
        self._blocks_version = 0
        """The version of the decoder's table that ``_blocks`` belong to."""
        self._previous: dict[bytes, tuple[Request, list[Field]]] = {}

    def decode_fields(self, block: bytes) -> list[Field]:
        """Return the fields of a block that begins no new request. Raises ConnectionFault."""
        return self._decoder.decode(block)

    def decode_request(self, block: bytes) -> Request:
        """Return the request that a block describes.

        Raises MalformedError, with the table still equal to the peer's, and ConnectionFault.
        """
        decoder = self._decoder
        if self._blocks_version == decoder.table_version:
            request = self._blocks.get(block)
            if request is not None:
                return request
        request = self._parse(decoder.decode(block))
        if decoder.table_unchanged:
            if self._blocks_version != decoder.table_version or len(self._blocks) >= _BLOCKS_MAX:
                self._blocks.clear()
                self._blocks_version = decoder.table_version
            self._blocks[block] = request
        return request

    def _parse(self, fields: list[Field]) -> Request:
        """Return the request with ``fields``. Raises MalformedError."""
        if self._decoder.list_bytes > self._header_list_bytes_max:
            return parse_request(fields, too_large=True)
        # A plain loop: it is run for each call.
        previous = None
        for name, value in fields:
            if name == b":path":
                previous = self._previous.get(value)
                break
        request = None if previous is None else parse_similar(fields, *previous)
        if request is None:
            request = parse_request(fields)
        if request.path in self._methods:
            self._previous[request.path] = request, fields
        return request
