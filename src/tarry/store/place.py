"""The place of a store's files: a local directory, or object storage by URI.

It is the one seam to the file system.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pyarrow import fs

from tarry.base.descriptors import when_free
from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.log.objects.s3_refusals import AskedStore, reason_of

_OBJECT_STORAGE = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
    "az": "abfss",
}
"""Schemes that Arrow and delta-rs both know, by people's names for them; Hadoop's are names of S3."""
_ALLOWED = "a path, file:///…, s3://bucket/… (s3a:// is the same), gs://bucket/… or abfss://container@account…/…"


def local_path(uri: str) -> Path | None:
    """Return the absolute path that a path or ``file://…`` names; None: it is a URI of something else."""
    scheme, separator, _ = uri.partition("://")
    if separator and scheme != "file":
        return None
    return Path(unquote(urlsplit(uri).path) if separator or uri.startswith("file:/") else uri).absolute()


def object_uri(uri: str, what: str, why: str = "") -> str:
    """Return a URI of object storage by the name that its scheme has here, without a slash at its end.

    ``what`` is at the URI, and ``why`` a scheme is refused, for the text of the error.

    Raises:
        InvalidArgumentError: another scheme; says what to write instead.
    """
    scheme, _, rest = uri.partition("://")
    if scheme not in _OBJECT_STORAGE:
        raise InvalidArgumentError(f"{what} is {uri!r:.300}; {why}allowed: {_ALLOWED}")
    return f"{_OBJECT_STORAGE[scheme]}://{rest.rstrip('/')}"


@dataclass(frozen=True, slots=True)
class Place:
    """The root of a table. ``local`` is None on object storage, where writes are durable when they return."""

    uri: str
    local: Path | None
    filesystem: Any
    base: str

    @classmethod
    def of(cls, uri: str) -> Place:
        """Return the place that a path or URI names; it is always absolute.

        Credentials of object storage come from the environment.

        Raises:
            InvalidArgumentError: a scheme that is not for stores; says what to write instead. Or its region is not set,
                and there is no such bucket. UnavailableError: it is not set, and cannot be asked for.
        """
        path = local_path(uri)
        if path is not None:
            return cls(str(path), path, fs.LocalFileSystem(), str(path))
        why = "commits on HDFS are not tested: " if uri.startswith("hdfs:") else ""
        uri = object_uri(uri, "the store's place", why)
        filesystem, base = _opened(uri)
        return cls(uri, None, filesystem, base.rstrip("/"))

    def path(self, relative: str) -> str:
        """Return the path, for :attr:`filesystem`, of a file in the Delta log (where names are URL-encoded)."""
        return f"{self.base}/{unquote(relative)}"

    def sizes(self, relatives: Iterable[str]) -> list[int | None]:
        """Sizes in bytes; None for a file that is not there."""
        return [size for size, _ in self.look_at(relatives)]

    def look_at(self, relatives: Iterable[str]) -> list[tuple[int | None, int | None]]:
        """Sizes in bytes, and when files were written last (UTC, ms); None for one that is not there."""
        infos = self.filesystem.get_file_info([self.path(r) for r in relatives])
        return [(info.size, None if info.mtime_ns is None else info.mtime_ns // 1_000_000) for info in infos]

    def remove(self, relatives: Iterable[str]) -> None:
        """Delete files; one that is already gone is fine."""
        for relative in relatives:
            try:
                self.filesystem.delete_file(self.path(relative))
            except FileNotFoundError:
                continue


def _opened(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI, and the path in it."""
    if not uri.startswith("s3://"):
        filesystem, base = fs.FileSystem.from_uri(uri)
        return filesystem, base
    # Arrow alone would ask Amazon for it, and fail without a network.
    region = next(filter(None, map(os.environ.get, ("AWS_REGION", "AWS_DEFAULT_REGION"))), None)
    try:
        filesystem, base = fs.FileSystem.from_uri(uri if region is None else f"{uri}?region={quote(region)}")
    except OSError as error:
        reason = reason_of(str(error), "tell the bucket's region", AskedStore.of(uri, os.environ))
        kind = InvalidArgumentError if reason.is_refusal else UnavailableError
        hint = "" if region else "; AWS_REGION is not set"
        raise kind(f"the store {uri} cannot be asked: {reason.text}{hint}") from error
    return filesystem, base


def sync_file(path: Path) -> None:
    """Make a written file, or the names in a directory, durable."""
    fd = when_free(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_up(directory: Path, root: Path) -> None:
    """Make the names in ``directory`` and in every directory up to and including ``root`` durable.

    All of them, even if they existed before: another task may have made a directory and not yet synced its name.
    """
    sync_file(directory)
    while directory != root:
        directory = directory.parent
        sync_file(directory)
