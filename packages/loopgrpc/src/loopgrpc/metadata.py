"""Metadata, gRPC's name for the header fields that callers and handlers add, to and from the wire.

Names that end in ``-bin`` carry bytes in base64, all others printable ASCII.
Source: PROTOCOL-HTTP2.md, Custom-Metadata.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping
from typing import Final

from loopgrpc.header_table import Field

DETAILS: Final = "grpc-status-details-bin"
"""A name of gRPC's own that handlers may set: details of an error, in any form."""
_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-.")


def encode_metadata(name: str, value: str | bytes) -> Field:
    """Encode a handler's field; ``-bin`` names take bytes (sent in base64), others printable ASCII.

    Raises ValueError: a name or a value that the wire cannot carry.
    """
    raw_name = name.encode("ascii")
    if (name.startswith("grpc-") and name != DETAILS) or not name or set(name) - _NAME_CHARACTERS:
        raise ValueError(f"metadata {name!r}; allowed: a-z 0-9 _ - ., and of names with grpc- at the start {DETAILS}")
    if name.endswith("-bin"):
        if not isinstance(value, bytes):
            raise ValueError(f"metadata {name!r} takes bytes")
        return raw_name, b64encode(value).rstrip(b"=")
    if not isinstance(value, str) or not value.isascii() or not (value.isprintable() and value == value.strip()):
        raise ValueError(f"metadata {name!r} takes printable ASCII without blanks at its ends")
    return raw_name, value.encode("ascii")


def join_metadata(fields: Iterable[Field]) -> Mapping[str, str]:
    """Return fields by their names; values that came separately under one name are joined with ``,``."""
    joined: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def decode_binary(text: str) -> list[bytes]:
    """Return the values of a ``-bin`` field.

    Raises ValueError: one of them is not base64.
    """
    try:
        # Senders may leave out the padding, and may join several values with commas.
        return [b64decode(part + "=" * (-len(part) % 4), validate=True) for part in text.split(",")]
    except Base64Error as error:
        raise ValueError(str(error)) from error
