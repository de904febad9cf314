"""The fields of a request's HEADERS: what call they ask for, or why they are refused.

Two kinds of refusal. Malformed by RFC 9113, section 8, is the fault of the stream and resets it (``MalformedError``).
Well-formed HTTP that is no gRPC, or gRPC that this server does not do, gets an answer (``Request.refusal``).
"""

from __future__ import annotations

import re
from typing import Final

from loopgrpc.fields import Field
from loopgrpc.status import StatusCode

ENCODINGS: Final = (b"identity", b"gzip", b"deflate")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+\Z")
_PLAIN = re.compile(rb"[!-~]+\Z")
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])\Z")
_UNIT_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}

# What a field's name makes of it.
_METADATA, _PSEUDO, _WIRE, _FORBIDDEN = range(4)
_KINDS: dict[bytes, int] = {
    **dict.fromkeys((b":method", b":scheme", b":path", b":authority"), _PSEUDO),
    **dict.fromkeys(
        (b"te", b"content-type", b"content-length", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"), _WIRE
    ),
    # Section 8.2.2: what belongs to a connection of HTTP/1.
    **dict.fromkeys((b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"), _FORBIDDEN),
}
_KINDS_MAX = 4_096
"""Names that peers made known are remembered up to here, so that a peer who invents names fills nothing."""


class MalformedError(Exception):
    """The fields break RFC 9113, section 8: RST_STREAM with PROTOCOL_ERROR."""


class Refusal:
    """An answer without a call: ``http`` other than 200 for what is no gRPC, else trailers with ``status``."""

    __slots__ = ("extra", "http", "status", "text")

    def __init__(self, http: int, status: StatusCode, text: str, *extra: Field) -> None:
        self.http = http
        self.status = status
        self.text = text
        self.extra = extra


class Request:
    """A well-formed request. Shared by all calls with the same header block: nothing in it may change."""

    __slots__ = ("content_length", "encoding", "metadata", "path", "places", "refusal", "timeout_s")

    def __init__(self) -> None:
        self.path = b""
        self.places: list[int] = []
        """Which of the fields are metadata."""
        self.metadata: list[Field] = []
        """Fields that are the caller's own, in their order."""
        self.encoding = b"identity"
        self.timeout_s: float | None = None
        self.content_length = -1
        self.refusal: Refusal | None = None


_NOT_POST = Refusal(405, StatusCode.INTERNAL, "gRPC is POST", (b"allow", b"POST"))
_NOT_GRPC = Refusal(415, StatusCode.UNKNOWN, "content-type has to be application/grpc")
_TOO_LARGE = Refusal(431, StatusCode.RESOURCE_EXHAUSTED, "more metadata than is allowed")


def parse_request(fields: list[Field], *, too_large: bool = False) -> Request:
    """The request that ``fields`` make; one that is ``too_large`` is refused without a look at its metadata.

    Raises MalformedError.
    """
    request = Request()
    pseudo: dict[bytes, bytes] = {}
    wire: dict[bytes, bytes] = {}
    metadata, places = request.metadata, request.places
    for place, field in enumerate(fields):
        name = field[0]
        kind = _KINDS.get(name)
        if kind is None:
            kind = _classify(name)
        if kind == _METADATA:
            metadata.append(field)
            places.append(place)
        elif kind == _WIRE:
            wire[name] = _single(wire, field)
        elif kind == _PSEUDO:
            if metadata or wire:
                raise MalformedError(f"{_shown(name)} after a regular field")
            pseudo[name] = _single(pseudo, field)
        else:
            raise MalformedError(f"{_shown(name)} belongs to HTTP/1")
    check_values(fields)
    _check_target(request, pseudo)
    _read_wire(request, wire)
    request.refusal = _refusal(request, pseudo[b":method"], wire, too_large=too_large)
    return request


def parse_alike(fields: list[Field], former: Request, before: list[Field]) -> Request | None:
    """The request that ``fields`` make, if they are those that ``former`` was made ``before`` of but for values of
    metadata and the timeout: a client's next call has another id and time, and to look at these alone takes a third of
    the time. None: they differ in more.

    Raises MalformedError.
    """
    if len(fields) != len(before) or former.refusal is not None:
        return None
    changed = [(now, then) for now, then in zip(fields, before, strict=True) if now != then]
    request = Request()
    request.timeout_s = former.timeout_s
    for (name, value), (known, _) in changed:
        if name != known:
            return None
        if name == b"grpc-timeout":
            request.timeout_s = _seconds(value)
            if request.timeout_s is None:
                return None
        elif _KINDS.get(name, _METADATA) != _METADATA:  # a name that is none made no former request
            return None
    if not all(_PLAIN.match(now[1]) for now, _ in changed):
        check_values([now for now, _ in changed])
    request.path, request.encoding = former.path, former.encoding
    request.content_length = former.content_length
    request.places = former.places
    request.metadata = [fields[place] for place in former.places]
    return request


def check_trailers(fields: list[Field]) -> None:
    """The fields that end a request; gRPC has no use for any. Raises MalformedError."""
    for name, _ in fields:
        kind = _KINDS.get(name)
        if kind == _PSEUDO or (_classify(name) if kind is None else kind) == _FORBIDDEN:
            raise MalformedError(f"{_shown(name)} in trailers")
    check_values(fields)


def check_values(fields: list[Field]) -> None:
    """Section 8.2.1: no value contains NUL, CR or LF, nor starts or ends with a space or a tab. Raises MalformedError.

    All values are looked at as one text, which costs a tenth of looking at each: an LF is put around each, so there
    have to be as many as that, and none beside a blank.
    """
    text = b"\n" + b"\n".join([value for _, value in fields]) + b"\n"
    if text.count(b"\n") != len(fields) + 1 and fields:
        raise MalformedError("a value with a line feed")
    if b"\0" in text or b"\r" in text:
        raise MalformedError("a value with NUL or CR")
    if b"\n " in text or b" \n" in text or b"\n\t" in text or b"\t\n" in text:
        raise MalformedError("a value with a blank at an end")


def _classify(name: bytes) -> int:
    """What an unknown ``name`` is: metadata, if it is a name at all. Raises MalformedError."""
    if not _TOKEN.match(name):
        raise MalformedError(f"{_shown(name)} is no name of a field; allowed: a token in lower case")
    if len(_KINDS) < _KINDS_MAX and len(name) <= 64:
        _KINDS[name] = _METADATA
    return _METADATA


def _single(seen: dict[bytes, bytes], field: Field) -> bytes:
    name, value = field
    if name in seen and not (name == b"te" or name == b"grpc-accept-encoding"):
        raise MalformedError(f"{_shown(name)} comes twice")
    return value


def _check_target(request: Request, pseudo: dict[bytes, bytes]) -> None:
    """Section 8.3.1: method, scheme and path are all there. Raises MalformedError."""
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


def _read_wire(request: Request, wire: dict[bytes, bytes]) -> None:
    """What HTTP itself says of the body. Raises MalformedError."""
    if wire.get(b"te", b"trailers").lower() != b"trailers":
        raise MalformedError("te is not trailers")
    if (length := wire.get(b"content-length")) is not None:
        # isdigit() of bytes is ASCII alone; the length keeps int() from becoming slow.
        if not length.isdigit() or len(length) > 18:
            raise MalformedError("content-length is no number")
        request.content_length = int(length)


def _refusal(request: Request, method: bytes, wire: dict[bytes, bytes], *, too_large: bool) -> Refusal | None:
    if too_large:
        return _TOO_LARGE
    if method != b"POST":
        return _NOT_POST
    content_type = wire.get(b"content-type", b"").lower()
    if not content_type.startswith(b"application/grpc") or content_type[16:17] not in (b"", b"+", b";"):
        return _NOT_GRPC
    request.encoding = wire.get(b"grpc-encoding", b"identity")
    if request.encoding not in ENCODINGS:
        text = f"grpc-encoding {_shown(request.encoding)} is not known here"
        accepted = (b"grpc-accept-encoding", b",".join(ENCODINGS))
        return Refusal(200, StatusCode.UNIMPLEMENTED, text, accepted)
    if (timeout := wire.get(b"grpc-timeout")) is not None:
        request.timeout_s = _seconds(timeout)
        if request.timeout_s is None:
            return Refusal(200, StatusCode.INTERNAL, f"grpc-timeout {_shown(timeout)} is none")
    return None


def _seconds(timeout: bytes) -> float | None:
    """What a ``grpc-timeout`` says; None: it is none."""
    found = _TIMEOUT.match(timeout)
    return None if found is None else int(found[1]) * _UNIT_S[found[2]]


def _shown(text: bytes) -> str:
    return repr(text[:64].decode("latin-1"))
