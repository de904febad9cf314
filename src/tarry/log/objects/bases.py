"""Bases: a new owner begins from the newest one, instead of the first round.

A base is a set of files as they were when all rounds before a place were in them. It may have more, of rounds that came
while it was made; these are answered before it counts, and to apply them again changes nothing. It counts once its
manifest is there, which is created last. Format: ``docs/formats-log-store.md``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import NamedTuple

from tarry.base.errors import CorruptError, OwnershipLostError
from tarry.log.objects.content import (
    DIGITS,
    BaseFile,
    Manifest,
    Piece,
    decode_end,
    decode_manifest,
    encode_manifest,
    numbered,
    round_key,
)
from tarry.log.objects.store import PATIENCE_S, ObjectStore, asked, created

PIECE_BYTES = 8 << 20
DELETE_KEYS = 1000
"""The most objects that one request deletes, as many as S3 takes.

A request for each would hold up the rounds that somebody waits for.
"""
_FOLDER, _MANIFEST = "base/", "/manifest"
_NAME = re.compile(rf"[0-9]{{{DIGITS}}}-[0-9]{{{DIGITS}}}")


class BaseSource(NamedTuple):
    """A file for a base.

    ``read(at, size)`` returns a part of it. ``is_final``: it never changes again, so later bases of the epoch need not
    have it put again. ``is_kept``: a small file that rounds may replace. ``is_gone()``: it is not needed any more, as a
    round says.
    """

    path: str
    size: int
    read: Callable[[int, int], Awaitable[bytes]]
    is_final: bool = False
    is_kept: bool = False
    is_gone: Callable[[], bool] = lambda: False

    @classmethod
    def of(cls, path: str, content: bytes) -> BaseSource:
        """Return a small file with this content."""

        async def read(at: int, size: int) -> bytes:
            return content[at : at + size]

        return cls(path, len(content), read, is_kept=True)


@dataclass
class EpochBases:
    """The bases that one owner makes."""

    store: ObjectStore
    epoch: int
    _final: dict[str, BaseFile] = field(default_factory=dict)
    _deleted: int | None = None
    """Rounds of this epoch that were deleted; None: those of former epochs were not either."""

    async def put(self, at: Manifest, sources: Iterable[BaseSource]) -> Manifest:
        """Put the files of a base with the place and history of ``at``; return its manifest.

        Raises:
            OSError: a file cannot be read. CorruptError: it has fewer bytes than were written to it.
            OwnershipLostError: another one writes in this epoch.
            UnavailableError: the store cannot be asked. The base is given up: the next one has names of its own.
        """
        files = []
        for number, source in enumerate(sources):
            there = self._final.get(source.path)
            if not source.is_final or there is None or there.size != source.size:
                try:
                    there = await self._put(at, number, source)
                except (FileNotFoundError, CorruptError):
                    if source.is_gone():
                        continue  # meanwhile, as a round from the place on says
                    raise
                if source.is_final:
                    self._final[source.path] = there
            files.append(there)
        self._final = {each.path: each for each in files if each.path in self._final}
        return at._replace(files=files)

    async def _put(self, at: Manifest, number: int, source: BaseSource) -> BaseFile:
        pieces: list[Piece] = []
        for begin in range(0, source.size, PIECE_BYTES):
            size = min(PIECE_BYTES, source.size - begin)
            if len(content := await source.read(begin, size)) != size:
                raise CorruptError(f"{source.path} has fewer than {source.size} bytes")
            key = f"{_folder_of(at.epoch, at.position)}/{number}-{len(pieces)}"
            if await created(self.store, key, content, PATIENCE_S) != content:
                raise OwnershipLostError(f"{key} is another's: two copies of one machine write in this epoch")
            pieces.append(Piece(key, len(content), zlib.crc32(content)))
        return BaseFile(source.path, source.size, source.is_kept, pieces)

    async def complete(self, manifest: Manifest) -> None:
        """Have a base count. All that is in it has to be answered before.

        Raises:
            OwnershipLostError: another one writes in this epoch.
            UnavailableError: the store cannot be asked. It may count all the same, or later: it is as good as any until
                a newer one counts, and is passed over then.
        """
        key, content = f"{_folder_of(manifest.epoch, manifest.position)}{_MANIFEST}", encode_manifest(manifest)
        if await created(self.store, key, content, PATIENCE_S) != content:
            raise OwnershipLostError(f"{key} is another's: two copies of one machine write in this epoch")

    async def trim(self, manifest: Manifest) -> None:
        """Delete what a base that counts takes the place of: rounds before it, and what is in others alone.

        Raises:
            UnavailableError: not all of it could be deleted; the next call deletes the rest.
        """
        if self._deleted is None:
            rounds = await asked(lambda: self.store.list("log/"), PATIENCE_S)
            own = numbered("log", self.epoch)
            await self._delete([key for key in rounds if key < own])
            self._deleted = 0
        await self._delete(round_key(self.epoch, each) for each in range(self._deleted, manifest.position))
        self._deleted = manifest.position
        needed = {piece.key for each in manifest.files for piece in each.pieces}
        needed.add(f"{_folder_of(manifest.epoch, manifest.position)}{_MANIFEST}")
        there = await asked(lambda: self.store.list(_FOLDER), PATIENCE_S)
        place = manifest.epoch, manifest.position
        # Manifests first: a base whose files go must not look whole. Of later bases, of a later owner, none.
        old = sorted((key for key in there if key not in needed and _place_of(key) < place), key=_is_no_manifest)
        await self._delete([key for key in old if not _is_no_manifest(key)])
        await self._delete([key for key in old if _is_no_manifest(key)])

    async def _delete(self, keys: Iterable[str]) -> None:
        left = iter(keys)  # there may be millions
        while some := list(islice(left, DELETE_KEYS)):
            await asked(partial(self.store.delete, some), PATIENCE_S)


async def newest_base(store: ObjectStore, before: int | None = None, known: Manifest | None = None) -> Manifest | None:
    """Return the newest base that counts, of the epochs before one if it is given; None: there is none.

    ``known``: one that was read, and is not looked at again.

    Raises:
        UnavailableError: the store cannot be asked. CorruptError: a manifest is damaged.
    """
    while True:
        keys = await asked(lambda: store.list(_FOLDER), PATIENCE_S)
        places = sorted((_place_of(key) for key in keys if key.endswith(_MANIFEST)), reverse=True)
        for epoch, position in places:
            if before is not None and epoch >= before:
                continue
            if known is not None and (epoch, position) == (known.epoch, known.position):
                return known
            end = await asked(partial(store.get, numbered("end", epoch)), PATIENCE_S)
            if end is not None and position > decode_end(end, epoch):
                continue  # its writer was no owner any more, and did not know
            key = f"{_folder_of(epoch, position)}{_MANIFEST}"
            content = await asked(partial(store.get, key), PATIENCE_S)
            if content is None:
                break  # a newer one has taken its place meanwhile
            return decode_manifest(content, key, epoch, position)
        else:
            return None


async def read_base(store: ObjectStore, manifest: Manifest) -> AsyncIterator[tuple[BaseFile, int, bytes]]:
    """Yield the pieces of a base's files in order: the file, the piece's offset in it, its bytes.

    Raises:
        UnavailableError: the store cannot be asked.
        MissingObject: one is not there: a newer base may have taken its place. CorruptError: one is damaged.
    """
    for each in manifest.files:
        async for offset, content in read_file(store, each):
            yield each, offset, content


async def read_file(store: ObjectStore, file: BaseFile) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the pieces of a file in order, each with its offset: at least one.

    Raises: see :func:`read_base`.
    """
    offset = 0
    if not file.pieces:
        yield 0, b""
    for piece in file.pieces:
        content = await asked(partial(store.get, piece.key), PATIENCE_S)
        if content is None:
            raise MissingObject(f"{piece.key} is missing: a piece of {file.path}")
        if len(content) != piece.size or zlib.crc32(content) != piece.crc:
            raise CorruptError(f"{piece.key} is damaged: its checksum does not hold")
        yield offset, content
        offset += piece.size


class MissingObject(Exception):  # noqa: N818  an error only if nothing takes its place
    """Something was deleted, perhaps since a newer base takes its place."""


def _folder_of(epoch: int, position: int) -> str:
    return f"{numbered('base', epoch)}-{position:020d}"


def _place_of(key: str) -> tuple[int, int]:
    folder = key.removeprefix(_FOLDER).partition("/")[0]
    if not _NAME.fullmatch(folder):
        raise CorruptError(f"{key} is no object of a log: nothing else may be below its prefix; delete it")
    epoch, _, position = folder.partition("-")
    return int(epoch), int(position)


def _is_no_manifest(key: str) -> bool:
    return not key.endswith(_MANIFEST)
