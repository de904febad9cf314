"""Small durable JSON files with a version and a checksum, replaced as a whole; ``docs/formats.md``."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tarry.base.errors import CorruptError
from tarry.log.files import TRY_AGAIN, Files, not_now
from tarry.log.format_version import is_newer, newer_format


def write_json(files: Files, path: Path, version: int, fields: Mapping[str, Any]) -> None:
    """Replace the file, atomically and durably."""
    files.replace(path, json_bytes(version, fields))


def json_bytes(version: int, fields: Mapping[str, Any]) -> bytes:
    """Return the content of such a file."""
    content: dict[str, Any] = {"version": version, **fields}
    content["crc"] = _crc(content)
    return json.dumps(content, indent=1).encode()


def change_json(files: Files, path: Path, version: int, fields: Mapping[str, Any], *, mode: int | None = None) -> None:
    """Write a file that somebody asked to change, as :func:`write_json` does.

    ``mode``: the mode of a file with secrets in it.

    Raises:
        DiskFullError, OverloadedError: nothing was changed; it may be tried again.
    """
    with _asked(path):
        if mode is not None:
            make_private(path, mode)
        write_json(files, path, version, fields)


def change_canonical(files: Files, path: Path, parts: Sequence[str]) -> None:
    """Write a file as :func:`change_json` does, of which the caller has the text.

    ``parts``: the fields, ``version`` among them, as JSON with sorted keys and the separators ", " and ": ".
    """
    content = "".join(parts).encode()
    with _asked(path):
        files.replace(path, b'%s, "crc": %d}' % (content[:-1], zlib.crc32(content)))


@contextmanager
def _asked(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in TRY_AGAIN:
            raise
        raise not_now(error, path, "nothing was changed") from error


def make_private(path: Path, mode: int) -> None:
    """Create the file that will replace this one, with its mode, before anything is written to it.

    A file that exists keeps its mode when it is written.
    """
    temporary = path.with_name(path.name + ".new")
    os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, mode))
    temporary.chmod(mode)


def read_json(path: Path, versions: Sequence[int], *, bare: Sequence[int] = ()) -> dict[str, Any] | None:
    """Return the fields that :func:`write_json` was given; None if there is no file.

    ``bare``: versions from before there was a checksum.

    Raises:
        CorruptError: it is damaged, or its version is none of ``versions``.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptError(f"{path} is damaged: {error}") from error
    return parse_json(text, str(path), versions, bare=bare)


def parse_json(text: str | bytes, name: str, versions: Sequence[int], *, bare: Sequence[int] = ()) -> dict[str, Any]:
    """Return the fields of a file with this content, at ``name``.

    Raises:
        CorruptError: as of :func:`read_json`.
    """
    try:
        content = json.loads(text)
        if "crc" not in content and content.get("version") in bare:
            sound = content.pop("version") in bare
        else:
            crc = content.pop("crc")
            sound = crc == _crc(content)
            version = content.pop("version")
            if sound and is_newer(version, versions):
                raise CorruptError(newer_format(name, version, versions))
            sound = sound and version in versions
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CorruptError(f"{name} is damaged: {error}") from error
    if not sound:
        readable = " or ".join(map(str, versions))
        raise CorruptError(f"{name} is damaged or of another version; this program reads version {readable}")
    fields: dict[str, Any] = content
    return fields


def _crc(fields: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())
