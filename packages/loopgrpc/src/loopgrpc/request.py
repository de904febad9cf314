"""The header fields of a request: the call they ask for, or the reason for a refusal.

There are two kinds of refusal. A request that is malformed by RFC 9113, section 8, is a stream error and resets the
stream (``MalformedError``). Well-formed HTTP that is not gRPC, or gRPC that this server does not support, gets a
response (``Request.refusal``). Sources: RFC 9113, section 8; PROTOCOL-HTTP2.md, Requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from loopgrpc.header_table import Field
from loopgrpc.status import StatusCode

ENCODINGS: Final = (b"identity", b"gzip", b"deflate")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+\Z")
_PLAIN = re.compile(rb"[!-~]+\Z")
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])\Z")
_UNIT_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}

# The kind of a field, by its name: the caller's own, HTTP/2's pseudo-header, HTTP's or gRPC's, or not allowed.
_METADATA, _PSEUDO, _PROTOCOL, _FORBIDDEN = range(4)
_KINDS: Final[Mapping[bytes, int]] = {
    **dict.fromkeys((b":method", b":scheme", b":path", b":authority"), _PSEUDO),
    **dict.fromkeys(
        (b"te", b"content-type", b"content-length", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"),
        _PROTOCOL,
    ),
    # Section 8.2.2: fields of an HTTP/1 connection.
    **dict.fromkeys((b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"), _FORBIDDEN),
}
_CACHED_NAMES_MAX: Final = 4_096
_CACHED_NAME_BYTES_MAX: Final = 64
"""Bounds of the cache of names, so that a peer that invents names does not fill the memory."""


class MalformedError(Exception):
    """The fields break RFC 9113, section 8: RST_STREAM with PROTOCOL_ERROR."""


class Refusal:
    """The response to a request that starts no call.

    It has an HTTP status other than 200 if the request is not gRPC, else trailers with a gRPC status.
    """

    __slots__ = ("fields", "http_status", "status", "text")

    def __init__(self, http_status: int, status: StatusCode, text: str, *fields: Field) -> None:
        self.http_status = http_status
        self.status = status
        self.text = text
        self.fields = fields


class Request:
    """A well-formed request. Shared by all calls with the same header block: nothing in it may change."""

    __slots__ = ("content_length", "encoding", "fields", "metadata_places", "path", "refusal", "timeout_s")

    def __init__(self, fields: list[Field]) -> None:
        self.path = b""
        self.fields = fields
        """All fields, as they came."""
        self.metadata_places: list[int] = []
        """Indexes of the fields that are metadata."""
        self.encoding = b"identity"
        self.timeout_s: float | None = None
        self.content_length = -1
        """The content-length in bytes; -1: there was none."""
        self.refusal: Refusal | None = None

    @property
    def metadata(self) -> list[Field]:
        """The caller's own fields, in their order."""
        return [self.fields[place] for place in self.metadata_places]

    def value(self, name: bytes) -> bytes:
        """Return the last of the caller's own fields of this name; empty if there is none."""
        for place in reversed(self.metadata_places):
            field = self.fields[place]
            if field[0] == name:
                return field[1]
        return b""


_NOT_POST = Refusal(405, StatusCode.INTERNAL, "gRPC is POST", (b"allow", b"POST"))
_NOT_GRPC = Refusal(415, StatusCode.UNKNOWN, "content-type has to be application/grpc")
_TOO_LARGE = Refusal(431, StatusCode.RESOURCE_EXHAUSTED, "more metadata than is allowed")


def parse_request(fields: list[Field], *, too_large: bool = False) -> Request:
    """Return the request that ``fields`` describe; with ``too_large`` it is refused for its size.

    Raises MalformedError.
    """
    request = Request(fields)
    pseudo: dict[bytes, bytes] = {}
    protocol: dict[bytes, bytes] = {}
    places = request.metadata_places
    for place, field in enumerate(fields):
        name = field[0]
        kind = _KINDS.get(name)
        if kind is None:
            kind = _classify(name)
        if kind == _METADATA:
            places.append(place)
        elif kind == _PROTOCOL:
            protocol[name] = _once(protocol, field)
        elif kind == _PSEUDO:
            if places or protocol:
                raise MalformedError(f"{_quoted(name)} after a regular field")
            pseudo[name] = _once(pseudo, field)
        else:
            raise MalformedError(f"{_quoted(name)} belongs to HTTP/1")
    check_values(fields)
    _check_target(request, pseudo)
    _check_protocol_fields(request, protocol)
    request.refusal = _refusal(request, pseudo[b":method"], protocol, too_large=too_large)
    return request


def parse_similar(fields: list[Field], previous: Request, previous_fields: list[Field]) -> Request | None:
    """Return the request that ``fields`` describe if it is similar to the ``previous`` one, else None.

    Similar means that ``fields`` differ from ``previous_fields`` in values of metadata and the timeout alone, and that
    the previous request was not refused. A client's next call mostly has another id and another time; checking these
    alone takes a third of the time of :func:`parse_request`. Raises MalformedError.
    """
    if len(fields) != len(previous_fields) or previous.refusal is not None:
        return None
    # Fields of the table are the same objects: comparing identities is cheaper than comparing values.
    pairs = zip(fields, previous_fields, strict=True)
    changes = [(new, old[0]) for new, old in pairs if new is not old and new != old]
    request = Request(fields)
    request.timeout_s = previous.timeout_s
    plain = True
    for (name, value), old_name in changes:
        if name != old_name:
            return None
        if name == b"grpc-timeout":
            request.timeout_s = _parse_timeout(value)
            if request.timeout_s is None:
                return None
        elif _KINDS.get(name, _METADATA) != _METADATA:  # a malformed name is in no previous request
            return None
        plain = plain and _PLAIN.match(value) is not None
    if not plain:
        check_values([new for new, _ in changes])
    request.path, request.encoding = previous.path, previous.encoding
    request.content_length = previous.content_length
    request.metadata_places = previous.metadata_places
    return request


def check_trailers(fields: list[Field]) -> None:
    """Check the fields that end a request; gRPC has no use for any. Raises MalformedError."""
    for name, _ in fields:
        kind = _KINDS.get(name)
        if kind == _PSEUDO or (_classify(name) if kind is None else kind) == _FORBIDDEN:
            raise MalformedError(f"{_quoted(name)} in trailers")
    check_values(fields)


def check_values(fields: list[Field]) -> None:
    """Check the values of ``fields`` by RFC 9113, section 8.2.1.

    No value may contain NUL, CR or LF, nor start or end with a space or a tab. All values are checked as one text,
    which costs a tenth of checking each: an LF is put around each, so there have to be exactly that many, and none
    beside a blank. Raises MalformedError.
    """
    text = b"\n" + b"\n".join([value for _, value in fields]) + b"\n"
    if text.count(b"\n") != len(fields) + 1 and fields:
        raise MalformedError("a value with a line feed")
    if b"\0" in text or b"\r" in text:
        raise MalformedError("a value with NUL or CR")
    if b"\n " in text or b" \n" in text or b"\n\t" in text or b"\t\n" in text:
        raise MalformedError("a value with a blank at an end")


def _classify(name: bytes) -> int:
    """Return the kind of a field whose ``name`` is not in ``_KINDS``: metadata, if it is well-formed.

    Raises MalformedError.
    """
    return _check_name_cached(name) if len(name) <= _CACHED_NAME_BYTES_MAX else _check_name(name)


def _check_name(name: bytes) -> int:
    if not _TOKEN.match(name):
        raise MalformedError(f"{_quoted(name)} is no name of a field; allowed: a token in lower case")
    return _METADATA


_check_name_cached = lru_cache(_CACHED_NAMES_MAX)(_check_name)


def _once(seen: dict[bytes, bytes], field: Field) -> bytes:
    """Return the value of a field that may come once, except two that gRPC tolerates.

    Raises MalformedError.
    """
    name, value = field
    if name in seen and not (name == b"te" or name == b"grpc-accept-encoding"):
        raise MalformedError(f"{_quoted(name)} comes twice")
    return value


def _check_target(request: Request, pseudo: dict[bytes, bytes]) -> None:
    """Check that method, scheme and path are there (RFC 9113, section 8.3.1).

    Raises MalformedError.
    """
    method, path = pseudo.get(b":method"), pseudo.get(b":path")
    if not method:
        raise MalformedError("there is no :method")
    if method == b"CONNECT":  # section 8.5: with neither scheme nor path
        if b":scheme" in pseudo or path is not None:
            raise MalformedError("CONNECT with a :scheme or a :path")
        return
    if not pseudo.get(b":scheme"):
        raise MalformedError("there is no :scheme")
    if not path or not (path.startswith(b"/") or path == b"*"):
        raise MalformedError("there is no :path that begins with /")
    request.path = path


def _check_protocol_fields(request: Request, protocol: dict[bytes, bytes]) -> None:
    """Check the fields of HTTP itself. Raises MalformedError."""
    if protocol.get(b"te", b"trailers").lower() != b"trailers":
        raise MalformedError("te is not trailers")
    if (length := protocol.get(b"content-length")) is not None:
        # isdigit() of bytes is ASCII alone; the length keeps int() from becoming slow.
        if not length.isdigit() or len(length) > 18:
            raise MalformedError("content-length is no number")
        request.content_length = int(length)


def _refusal(request: Request, method: bytes, protocol: dict[bytes, bytes], *, too_large: bool) -> Refusal | None:
    if too_large:
        return _TOO_LARGE
    if method != b"POST":
        return _NOT_POST
    content_type = protocol.get(b"content-type", b"").lower()
    if not content_type.startswith(b"application/grpc") or content_type[16:17] not in (b"", b"+", b";"):
        return _NOT_GRPC
    request.encoding = protocol.get(b"grpc-encoding", b"identity")
    if request.encoding not in ENCODINGS:
        text = f"grpc-encoding {_quoted(request.encoding)} is not known here"
        accepted = (b"grpc-accept-encoding", b",".join(ENCODINGS))
        return Refusal(200, StatusCode.UNIMPLEMENTED, text, accepted)
    if (timeout := protocol.get(b"grpc-timeout")) is not None:
        request.timeout_s = _parse_timeout(timeout)
        if request.timeout_s is None:
            return Refusal(200, StatusCode.INTERNAL, f"grpc-timeout {_quoted(timeout)} is none")
    return None


def _parse_timeout(timeout: bytes) -> float | None:
    """Return the seconds of a ``grpc-timeout``; None if it is malformed."""
    match = _TIMEOUT.match(timeout)
    return None if match is None else int(match[1]) * _UNIT_S[match[2]]


def _quoted(text: bytes) -> str:
    return repr(text[:64].decode("latin-1"))
