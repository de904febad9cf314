"""Makes a backup of a serving broker in object storage.

The broker holds its files, this process links them beside the hold, checks what it linked as ``tarry verify`` does, and
sends it from there. So nothing is copied on this machine, and the broker removes all of it with the hold, also when
this process was killed. The hold lasts until all is sent.

The files go to a directory of a name of its own, and the manifest is created last, by a request that fails where there
is one. So whole backups are never changed, and of several commands at one place one succeeds. Format:
``docs/formats.md``.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from tarry.api.backups import HeldFiles
from tarry.api.calls import Calls
from tarry.backup.bucket import Bucket
from tarry.backup.checking import check_copy
from tarry.backup.files import LOG, no_room
from tarry.backup.held_copy import PATIENCE_S, copy_held, held_files, over
from tarry.backup.manifest import MODE, BackupManifest, FileMark
from tarry.backup.sources import FILES
from tarry.base.errors import CorruptError, InvalidArgumentError, TarryError, UnavailableError
from tarry.base.version import VERSION
from tarry.log.file_engine import BACKUP_FILE
from tarry.store.place import Place
from tarry.verify.check import CHUNK_BYTES, Pace

FILES_AT_ONCE = 4
_OURS = re.compile(FILES + "[0-9a-f]{16}")
_PARTITION = "shard=0"
"""In a store and in logs."""


def upload_backup(
    broker: Calls, uri: str, pace: Pace = lambda _: None, patience_s: float = PATIENCE_S
) -> BackupManifest:
    """Make a backup of ``broker`` below ``uri``: nothing is there, or backups that were interrupted.

    Everything that was acknowledged before is in it. ``pace`` is called with numbers of bytes read, from any thread.

    Raises:
        InvalidArgumentError: a backup or something else is there, or the place is in a backup, a store or logs; object
            storage refuses; or the broker's logs are in an object store.
        UnavailableError: object storage gives no answer; or the broker's files cannot be read here.
        CorruptError: a file of the broker is damaged. DiskFullError: there is no room for the copies of the files that
            are written in place. OverloadedError: another backup of this broker is under way. NotFoundError: the broker
            has stopped meanwhile.
    """
    bucket, directory, data = Bucket(uri), FILES + token_hex(8), Path()
    _check_free(bucket)
    try:
        with ExitStack() as stack:
            held = stack.enter_context(held_files(broker, patience_s))
            data = Path(held.data)
            root = stack.enter_context(linked(held))
            files = copy_held(held, broker, root, pace)
            check_copy(root, pace)
            modes = {name: (root / name).stat().st_mode & 0o777 for name in files}
            _send(bucket, directory, root, files, pace)
        check_there(bucket, directory, files)
    except OSError as error:
        _forget(bucket, directory)
        raise no_room(error, data, "there is no backup. Make some room") from error
    except BaseException:
        _forget(bucket, directory)
        raise
    store = held.store if Place.of(held.store).local is None else None
    manifest = BackupManifest(held.at_ms, VERSION, store, held.store_version, files, directory)
    manifest = replace(manifest, modes={name: mode for name, mode in modes.items() if mode != MODE})
    _have_it_count(bucket, directory, manifest)
    return manifest


def _check_free(bucket: Bucket) -> None:
    """Check that a backup may be made there."""
    there = bucket.names()
    if BACKUP_FILE in there.objects:
        raise _is_whole(bucket)
    others = [*there.objects, *(f"{each}/" for each in there.directories if not _OURS.fullmatch(each))]
    if others:
        raise InvalidArgumentError(
            f"{bucket.uri} has {', '.join(sorted(others)[:5])}, which is no backup; allowed: a prefix with nothing "
            "below it, or with a backup that was interrupted"
        )
    for level in bucket.levels:
        try:
            found = next((each for each in (LOG, BACKUP_FILE, _PARTITION) if bucket.is_used(level, each)), None)
        except InvalidArgumentError:
            continue  # a key with rights below the prefix alone cannot look there
        if found is not None:
            raise InvalidArgumentError(
                f"{bucket.uri} is below {level or 'the root'!r} of its bucket, where a store, logs or a backup are: it "
                f"has {found}; allowed: a prefix outside of it"
            )


def _is_whole(bucket: Bucket) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{bucket.uri} has a whole backup already; allowed: a prefix with nothing below it, or with a backup that was "
        "interrupted"
    )


@contextmanager
def linked(held: HeldFiles) -> Iterator[Path]:
    """Have a directory beside the hold, for links to its files; the broker removes it with the hold.

    As root one works as the broker's user meanwhile, who could not remove files of root's.
    """
    hold = Path(held.directory)
    owner, own = hold.stat(), (os.geteuid(), os.getegid())
    if own[0] == 0:
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
    try:
        root = hold.with_name(f"{hold.name}-linked")
        try:
            root.mkdir(mode=0o700)
        except FileNotFoundError as error:
            raise over(held) from error
        try:
            yield root
        except (FileNotFoundError, CorruptError) as error:
            if root.exists():
                raise
            raise over(held) from error
    finally:
        os.seteuid(own[0])
        os.setegid(own[1])


def _send(bucket: Bucket, directory: str, root: Path, files: Mapping[str, FileMark], pace: Pace) -> None:
    with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="tarry-backup-send") as threads:

        def send(name: str) -> None:
            bucket.write(f"{directory}/{name}", _chunks(root / name, files[name], pace), files[name].size)

        try:
            for sent in [threads.submit(send, name) for name in files]:
                sent.result()
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _chunks(path: Path, mark: FileMark, pace: Pace) -> Iterator[bytes]:
    """Yield a file's bytes, which are those of the manifest, or raise CorruptError."""
    crc = size = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            crc, size = zlib.crc32(chunk, crc), size + len(chunk)
            yield chunk
            pace(len(chunk))
    if (what := mark.differs(FileMark(size, crc))) is not None:
        raise CorruptError(f"{path} has changed since it was checked: {what}; allowed: a disk that keeps what it has")


def check_there(bucket: Bucket, directory: str, files: Mapping[str, FileMark]) -> None:
    """Check that object storage has all that was sent."""
    there = bucket.sizes(directory)
    wrong = [name for name, mark in files.items() if there.get(name) != mark.size]
    if wrong:
        raise UnavailableError(
            f"{bucket.uri} does not have what it answered for: {len(wrong)} of {len(files)} objects, {wrong[0]} among "
            f"them ({there.get(wrong[0], 'missing')}, not {files[wrong[0]].size} bytes); allowed: object storage that "
            "lists what was written"
        )


def _have_it_count(bucket: Bucket, directory: str, manifest: BackupManifest) -> None:
    """Create the manifest, by which the backup is whole, and delete what interrupted backups have left."""
    content = manifest.to_bytes()
    try:
        is_ours = bucket.create(BACKUP_FILE, content) or bucket.get(BACKUP_FILE) == content  # or by a repeated request
    except UnavailableError as error:
        raise UnavailableError(
            f"{error}. Whether the backup is whole is not known; allowed: tarry verify {bucket.uri}, which tells"
        ) from error
    if not is_ours:
        _forget(bucket, directory)
        raise _is_whole(bucket)
    with suppress(TarryError):  # they take room, and are of no use
        for other in bucket.names().directories:
            # Whoever is still about to fill it finds this manifest, and none of theirs can be created any more.
            if other != directory and _OURS.fullmatch(other):
                _delete(bucket, other)


def _forget(bucket: Bucket, directory: str) -> None:
    with suppress(TarryError):  # the next backup there deletes it
        _delete(bucket, directory)


def _delete(bucket: Bucket, directory: str) -> None:
    bucket.delete(f"{directory}/{name}" for name in bucket.sizes(directory))
