"""Names and bytes of the objects: pure encode and decode. Format: ``docs/formats-log-store.md``."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tarry.base.errors import CorruptError
from tarry.log.engine import Part
from tarry.log.frame import LogKind

VERSION = 1
MAGIC = b"TARRYRND"
HEADER = struct.Struct("<8sIIQQ16sq32sQI")
CRC = struct.Struct("<I")
PART = struct.Struct("<IIQqQ")
HEADER_BYTES = HEADER.size + CRC.size
NO_DIGEST = bytes(32)
DIGITS = 20
"""Of a number in a key."""
TRIMMED = -1
"""Position of a part that says: this segment and those before are deleted."""
HANDED_OVER = -2
"""Position of a part that says: its writer hands nothing out any more; its content is :data:`LEFT`."""
LEFT = struct.Struct("<q")
"""Latest due time of what may have been handed out without being in the ready log."""


class StoredRound(NamedTuple):
    """A round as it is in the store. ``digest`` is that of the round before it."""

    epoch: int
    number: int
    nonce: bytes
    clock_ms: int
    digest: bytes
    parts: Sequence[Part]


class Piece(NamedTuple):
    """A piece of a file, in an object of its own."""

    key: str
    size: int
    crc: int


class BaseFile(NamedTuple):
    """A file of a base. ``is_kept``: a small file, which rounds may replace."""

    path: str
    size: int
    is_kept: bool
    pieces: Sequence[Piece]


class Manifest(NamedTuple):
    """A base: its place, the history before that, and its files.

    ``digest``: of the round before the place; ``trimmed``: by log, the first segment that is kept.
    """

    epoch: int
    position: int
    clock_ms: int
    digest: bytes
    trimmed: Mapping[LogKind, int]
    files: Sequence[BaseFile] = ()


def number_in(key: str) -> int:
    """Return the number that a key ends with. Raises CorruptError: it is nobody's, put there by hand."""
    last = key.rpartition("/")[2]
    if len(last) != DIGITS or not last.isdecimal():
        raise CorruptError(f"{key} is no object of a log: nothing else may be below its prefix; delete it")
    return int(last)


def numbered(folder: str, number: int) -> str:
    """``epoch/00000000000000000042``."""
    return f"{folder}/{number:020d}"


def round_key(epoch: int, number: int) -> str:
    """``log/E/P``."""
    return numbered(numbered("log", epoch), number)


def digest_of(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def encode_round(each: StoredRound) -> bytes:
    """Return the bytes of a round: always the same for the same round."""
    body: list[bytes] = []
    for part in each.parts:
        body += [PART.pack(part.kind, 0, part.segment, part.position, len(part.content)), part.content]
    content = b"".join(body)
    head = HEADER.pack(
        *(MAGIC, VERSION, len(each.parts), each.epoch, each.number),
        *(each.nonce, each.clock_ms, each.digest, len(content), zlib.crc32(content)),
    )
    return head + CRC.pack(zlib.crc32(head)) + content


def decode_round(content: bytes, epoch: int, number: int) -> StoredRound:
    """Return a round. Raises CorruptError: it is damaged, of another version, or another round."""
    key = round_key(epoch, number)
    if len(content) < HEADER_BYTES or zlib.crc32(content[: HEADER.size]) != CRC.unpack_from(content, HEADER.size)[0]:
        raise CorruptError(f"{key}: the header's checksum does not hold")
    magic, version, count, *named, nonce, clock_ms, digest, size, crc = HEADER.unpack_from(content)
    if magic != MAGIC or version != VERSION:
        raise CorruptError(f"{key} has format version {version}; this program reads version {VERSION}")
    if named != [epoch, number]:
        raise CorruptError(f"{key} is round {named[1]} of epoch {named[0]}")
    body = memoryview(content)[HEADER_BYTES:]
    if len(body) != size or zlib.crc32(body) != crc:
        raise CorruptError(f"{key}: the checksum of its parts does not hold")
    parts, at = [], 0
    for _ in range(count):
        kind, _, segment, position, size = PART.unpack_from(body, at)
        at += PART.size
        parts.append(Part(LogKind(kind), segment, position, bytes(body[at : at + size])))
        at += size
    return StoredRound(epoch, number, nonce, clock_ms, digest, parts)


def encode_file(name: str, content: bytes) -> Part:
    """Return the part that is a small file, ``name`` in the directory."""
    path = name.encode()
    return Part(LogKind.FILES, 0, len(path), path + content)


def decode_file(part: Part) -> tuple[str, bytes]:
    """Return name and content of a small file."""
    return part.content[: part.position].decode(), part.content[part.position :]


def encode_epoch(epoch: int, nonce: bytes, who: str) -> bytes:
    """Return the content of ``epoch/E``."""
    return _encode(epoch=epoch, nonce=nonce.hex(), who=who, addresses=[])


def decode_nonce(content: bytes, epoch: int) -> bytes:
    """Return the nonce in ``epoch/E``. Raises CorruptError."""
    key = numbered("epoch", epoch)
    fields = _decode(key, content)
    try:
        return bytes.fromhex(fields["nonce"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"{key} names no nonce") from error


def decode_who(content: bytes, epoch: int) -> str:
    """Return who has claimed, from ``epoch/E``, for people. Raises CorruptError."""
    return str(_decode(numbered("epoch", epoch), content).get("who"))


def encode_end(position: int) -> bytes:
    """Return the content of ``end/E``."""
    return _encode(position=position)


def decode_end(content: bytes, epoch: int) -> int:
    """Return how many rounds of an epoch count, from ``end/E``. Raises CorruptError."""
    key = numbered("end", epoch)
    position = _decode(key, content).get("position")
    if not isinstance(position, int) or position < 0:
        raise CorruptError(f"{key} says position {position!r}; allowed: a number from 0")
    return position


def encode_manifest(base: Manifest) -> bytes:
    """Return the content of ``base/E-P/manifest``."""
    files = [
        {"path": each.path, "size": each.size, "kept": each.is_kept, "pieces": [list(piece) for piece in each.pieces]}
        for each in base.files
    ]
    return _encode(
        epoch=base.epoch,
        position=base.position,
        clock_ms=base.clock_ms,
        digest=base.digest.hex(),
        trimmed={str(int(kind)): segment for kind, segment in base.trimmed.items()},
        files=files,
    )


def decode_manifest(content: bytes, key: str, epoch: int, position: int) -> Manifest:
    """Return a base. Raises CorruptError: its manifest is damaged, of another version, or another's."""
    fields = _decode(key, content)
    if (fields.get("epoch"), fields.get("position")) != (epoch, position):
        raise CorruptError(f"{key} is base {fields.get('position')} of epoch {fields.get('epoch')}")
    try:
        files = [
            BaseFile(each["path"], each["size"], each["kept"], [Piece(*piece) for piece in each["pieces"]])
            for each in fields["files"]
        ]
        trimmed = {LogKind(int(kind)): int(segment) for kind, segment in fields["trimmed"].items()}
        return Manifest(epoch, position, int(fields["clock_ms"]), bytes.fromhex(fields["digest"]), trimmed, files)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptError(f"{key} is damaged: {error!r}") from error


def _encode(**fields: object) -> bytes:
    content = {"format": VERSION, **fields}
    return json.dumps({**content, "crc": _crc_of(content)}).encode()


def _crc_of(fields: Mapping[str, object]) -> int:
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())


def _decode(key: str, content: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{key} is no JSON: {error}") from error
    if not isinstance(fields, dict) or fields.get("format") != VERSION:
        raise CorruptError(f"{key} has another format than {VERSION}, which this program reads")
    if fields.pop("crc", None) != _crc_of(fields):
        raise CorruptError(f"{key} is damaged: its checksum does not hold")
    return fields
