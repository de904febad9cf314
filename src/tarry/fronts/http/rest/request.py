"""A request as an endpoint sees it: decoded path, query and headers, and its body, read within bounds.

The path is taken apart before it is decoded, so that a name may have a slash in it, written ``%2F``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import parse_qsl, unquote_to_bytes

from tarry.api.audit import AskedBy
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.fronts.http.app import Receive, Scope
from tarry.fronts.http.body_budget import BodyBudget
from tarry.fronts.http.errors import HttpError
from tarry.fronts.http.services import HttpServices
from tarry.fronts.kit.unread import Room

QUERY_FIELDS_MAX = 1000


class ClientLeftError(Exception):
    """The client went away; nobody is there to answer."""


class RestRequest:
    """One request. :meth:`close` when it was answered."""

    __slots__ = (
        "_budget", "_held", "_is_read", "_query", "_receive", "_watch", "desk", "headers", "method", "refused", "room",
        "scope",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, budget: BodyBudget, room: Room, desk: HttpServices) -> None:
        self.room = room
        """Room for its answer, until that was sent."""
        self.desk = desk
        """The broker, as the sender of the request sees it."""
        self.refused: TarryError | None = None
        """The sender is not known any more: nothing more is done for it."""
        self._watch: asyncio.Task[None] | None = None
        self.scope = scope
        self.method: str = scope["method"]
        self.headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        self._receive = receive
        self._budget = budget
        self._held = 0
        self._is_read = False
        self._query: list[tuple[str, str]] | None = None

    @property
    def asked(self) -> AskedBy:
        """The caller, for the audit log."""
        request = self.headers.get("x-request-id", b"").decode("latin-1")[:100]
        return self.desk.principal.asks((self.scope["client"] or ("",))[0], "http", request or None)

    @property
    def is_read(self) -> bool:
        """True if its body was read to the end."""
        return self._is_read

    @property
    def segments(self) -> list[str]:
        """The parts of its path, decoded.

        Raises:
            InvalidArgumentError: one is not UTF-8.
        """
        raw = self.scope.get("raw_path") or self.scope["path"].encode()
        return [text_of(unquote_to_bytes(part), "the path") for part in raw.split(b"/")[1:]]

    @property
    def query(self) -> list[tuple[str, str]]:
        """Names and values of the query, in order; without a ``token``, which is the caller's secret.

        Raises:
            InvalidArgumentError: it is not UTF-8, or too much.
        """
        if self._query is None:
            self._query = [field for field in _query(self.scope["query_string"]) if field[0] != "token"]
        return self._query

    def header(self, name: str) -> str | None:
        """Return a header's text; ``name`` is in lower case.

        Raises:
            InvalidArgumentError: it is not UTF-8.
        """
        value = self.headers.get(name)
        return None if value is None else text_of(value, f"the header {name}")

    def headers_of(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield the headers of a prefix, without it, with their texts; one that is there twice comes twice.

        Raises:
            InvalidArgumentError: one is not UTF-8.
        """
        for raw, value in self.scope["headers"]:
            name = raw.decode("latin-1")
            if name.startswith(prefix):
                yield name.removeprefix(prefix), text_of(value, f"the header {name}")

    @property
    def media_type(self) -> str | None:
        """The media type of its body, by its header, without parameters."""
        raw = self.headers.get("content-type")
        return None if raw is None else raw.decode("latin-1").partition(";")[0].strip().lower()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield its body as it comes; the caller limits how much it keeps.

        Raises:
            ClientLeftError: it ended in the middle. HttpError: 415, it is compressed.
        """
        coding = self.headers.get("content-encoding", b"identity").lower()
        if coding != b"identity":
            # A few bytes could become gigabytes.
            raise HttpError(
                415, "unsupported_media_type", f"content-encoding is {coding[:40].decode('latin-1')!r}; allowed: none"
            )
        while not self._is_read:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientLeftError
            # Before the chunk is looked at: whoever refuses the last one has read all.
            self._is_read = not message.get("more_body", False)
            if chunk := message.get("body", b""):
                yield chunk

    def take(self, size: int) -> None:
        """Count bytes of its body as kept in memory, until :meth:`close` or :meth:`give_back`.

        Raises:
            OverloadedError: other requests have too many.
        """
        self._budget.take(size)
        self._held += size

    def give_back(self, size: int) -> None:
        self._budget.give_back(size)
        self._held -= size

    async def body(self, bytes_max: int) -> bytes:
        """All of its body.

        Raises:
            HttpError: 413, it is longer than ``bytes_max``; not more than that is read.
            OverloadedError: other requests have too many.
        """
        self.check_length(bytes_max)
        parts, size = [], 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > bytes_max:
                raise _too_long(size, bytes_max)
            self.take(len(chunk))
            parts.append(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def check_length(self, bytes_max: int) -> None:
        """Check the length that the headers give for the body.

        Raises:
            HttpError: 413, it says itself that its body is longer than this.
        """
        length = self.headers.get("content-length", b"")
        if length.isdigit() and (len(length) > 18 or int(length) > bytes_max):
            raise _too_long(int(length[:18]), bytes_max)

    def refuse(self, error: TarryError) -> None:
        """Do nothing more for it, and end its waiting: its sender is not known any more."""
        self.refused = error
        if self._watch is not None:
            self._watch.cancel()

    def watch(self) -> asyncio.Task[None]:
        """Return a task that ends when nothing more is to be done: the client has gone or is not known.

        Call it after the body was read, and cancel the task when it is no longer needed.
        """

        async def wait() -> None:
            while (await self._receive())["type"] != "http.disconnect":
                pass

        self._watch = asyncio.ensure_future(wait())
        if self.refused is not None:
            self._watch.cancel()
        return self._watch

    def check_sender(self) -> None:
        """Check that its sender is still there, and known.

        Raises:
            UnavailableError: it is not known any more. ClientLeftError: it has gone.
        """
        if self.refused is not None:
            raise self.refused
        if self._watch is not None and self._watch.done():
            raise ClientLeftError

    def close(self) -> None:
        """Free the room that its body held."""
        self._budget.give_back(self._held)
        self._held = 0


def text_of(raw: bytes, what: str) -> str:
    """Decode a text; ``what`` names it in the error.

    Raises:
        InvalidArgumentError: ``raw`` is not UTF-8.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{what} is {raw[:60]!r}; allowed: UTF-8") from error


def _query(raw: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            raw.decode("latin-1"), keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
        )
    except ValueError as error:
        raise InvalidArgumentError(
            f"the query is {raw[:60]!r}: {error}; allowed: up to {QUERY_FIELDS_MAX} fields in UTF-8"
        ) from error


def _too_long(size: int, bytes_max: int) -> HttpError:
    return HttpError(413, "message_too_large", f"the body has {size} bytes or more; allowed: {bytes_max}")
