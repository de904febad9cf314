"""Objects below a URI, for backups: what is asked of object storage, by the library ``obstore``.

Its calls wait for their answers, and it repeats requests that failed by itself. Bytes go in parts, in both directions:
no request has more than :data:`PART_BYTES` of them, but for files of more than :data:`PARTS_MAX` parts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn, TypeVar
from urllib.parse import urlsplit

from tarry.backup.clouds import cloud_of, is_bucket_absent
from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.base.extras import missing_extra
from tarry.store.place import object_uri

A = TypeVar("A")
PART_BYTES = 8 << 20
PARTS_MAX = 9000
"""S3 takes 10,000 parts of an object."""
PARTS_AT_ONCE = 2
"""Of one object."""
TIMEOUT = timedelta(seconds=180)
"""Of a request, which has a part: 50 kB a second."""
RETRIES: dict[str, Any] = {
    "max_retries": 8,
    "backoff": {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=10), "base": 2},
    "retry_timeout": timedelta(seconds=120),
}
"""Half a minute without an answer ends a backup."""
_DELETED_AT_ONCE = 1000


class Names(NamedTuple):
    """One level below a place: its objects and its directories."""

    objects: Sequence[str]
    directories: Sequence[str]


class Bucket:
    """Objects by their names below ``uri``. Any thread.

    Credentials and endpoint come from the environment, as those of a store.

    Every call raises UnavailableError where there is no answer, and InvalidArgumentError where the answer is a refusal
    that somebody has to mend: a wrong key, no such bucket, no right.
    """

    def __init__(self, uri: str) -> None:
        """Nothing is asked yet.

        Raises:
            InvalidArgumentError: no such scheme, the extra ``objects`` is missing, or a setting is wrong.
        """
        self.uri = object_uri(uri, "the backup's place")
        try:
            import obstore
            from obstore import store
            from obstore.exceptions import AlreadyExistsError, BaseError
        except ImportError as error:
            raise InvalidArgumentError(missing_extra(f"a backup at {uri}", "objects", error)) from error
        self._obstore: Any = obstore
        self._exists, self._error = AlreadyExistsError, BaseError
        self._cloud = cloud_of(self.uri, os.environ)
        parts = urlsplit(self.uri)
        if not parts.netloc:
            raise InvalidArgumentError(f"the backup's place is {uri!r:.300}; allowed: {self._cloud.form}")
        self._prefix = parts.path.strip("/")
        http = self._cloud.http_options(TIMEOUT)
        made: Any = store.from_url  # typed by store
        try:
            self._store = made(f"{parts.scheme}://{parts.netloc}", client_options=http, retry_config=RETRIES)
        except (BaseError, ValueError) as error:
            reason = self._cloud.reason(str(error), "be named")
            text = reason.text if reason.is_refusal else " ".join(str(error).partition("Debug source")[0].split())
            raise InvalidArgumentError(f"the backup's place, {self.uri}: {text}") from error

    @property
    def levels(self) -> Sequence[str]:
        """The prefixes that this one is in, from the bucket's root ("") on, without itself."""
        names = self._prefix.split("/") if self._prefix else []
        return ["/".join(names[:count]) for count in range(len(names))]

    def is_used(self, *parts: str) -> bool:
        """Return whether there is an object at or below a path of the bucket, not of the prefix."""
        path = "/".join(filter(None, parts))
        try:
            self._answer(lambda: self._obstore.head(self._store, path), f"get {path}")
        except FileNotFoundError:
            return self._answer(lambda: any(self._obstore.list(self._store, path, chunk_size=1)), f"list {path}")
        return True

    def names(self) -> Names:
        """Return what is at the first level."""
        found = self._answer(
            lambda: self._obstore.list_with_delimiter(self._store, self._prefix or None), f"list {self._prefix}"
        )
        start = len(self._prefix) + 1 if self._prefix else 0
        objects = [str(each["path"])[start:] for each in found["objects"]]
        return Names(objects, [str(each)[start:] for each in found["common_prefixes"]])

    def sizes(self, directory: str) -> dict[str, int]:
        """Return the size of each object below a directory ("": all), by its path in it."""
        path = self._key(directory)
        start = len(path) + 1 if path else 0

        def listed() -> dict[str, int]:
            chunks = self._obstore.list(self._store, path or None)
            return {str(each["path"])[start:]: int(each["size"]) for chunk in chunks for each in chunk}

        return self._answer(listed, f"list {path}")

    def create(self, name: str, content: bytes) -> bool:
        """Create an object if there is none. False: there is one, perhaps by an earlier try of this call."""
        key = self._key(name)
        try:
            self._answer(
                lambda: self._obstore.put(self._store, key, content, mode="create"), f"put {key}", raised=self._exists
            )
        except self._exists:
            return False
        return True

    def write(self, name: str, chunks: Iterator[bytes], size: int) -> None:
        """Write an object of ``size`` bytes, which is there whole or not at all.

        What ``chunks`` raises is raised.
        """
        key = self._key(name)
        if size <= PART_BYTES:
            content = b"".join(chunks)
            self._answer(lambda: self._obstore.put(self._store, key, content, use_multipart=False), f"put {key}")
            return
        part_bytes = max(PART_BYTES, -(-size // PARTS_MAX))
        options = {"use_multipart": True, "chunk_size": part_bytes, "max_concurrency": PARTS_AT_ONCE}
        failed: list[BaseException] = []

        def watched() -> Iterator[bytes]:
            try:
                yield from chunks
            except BaseException as error:
                failed.append(error)
                raise

        try:
            self._answer(lambda: self._obstore.put(self._store, key, watched(), **options), f"put {key}")
        except Exception:
            if failed:  # not an error of the store, whatever the library made of it
                raise failed[0] from None
            raise

    def get(self, name: str) -> bytes | None:
        """Return an object's content; None: there is none."""
        key = self._key(name)
        try:
            return self._answer(lambda: bytes(self._obstore.get(self._store, key).bytes()), f"get {key}")
        except FileNotFoundError:
            return None

    def read(self, name: str, size: int) -> Iterator[bytes]:
        """Yield an object's bytes, of which there are ``size``. Raises FileNotFoundError."""
        key = self._key(name)
        for at in range(0, size, PART_BYTES):
            length = min(PART_BYTES, size - at)
            yield self._answer(
                lambda at=at, length=length: bytes(  # type: ignore[misc]
                    self._obstore.get_range(self._store, key, start=at, length=length)
                ),
                f"get {key}",
            )

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; one that is not there is fine."""
        keys = [self._key(name) for name in names]
        for at in range(0, len(keys), _DELETED_AT_ONCE):
            some = keys[at : at + _DELETED_AT_ONCE]
            try:
                self._delete(some)
            except FileNotFoundError:  # not of S3; what becomes of the others is not known then
                for key in some:
                    with suppress(FileNotFoundError):
                        self._delete([key])

    def _key(self, name: str) -> str:
        return "/".join(filter(None, (self._prefix, name)))

    def _delete(self, keys: list[str]) -> None:
        self._answer(lambda: self._obstore.delete(self._store, keys), f"delete {keys[0]}")

    def _answer(self, request: Callable[[], A], what: str, raised: type[Exception] | tuple[()] = ()) -> A:
        try:
            return request()
        except raised:
            raise
        except FileNotFoundError as error:
            if not is_bucket_absent(str(error)):
                raise
            self._fail(error, what)
        except (self._error, OSError, ValueError) as error:
            self._fail(error, what)

    def _fail(self, error: Exception, what: str) -> NoReturn:
        reason = self._cloud.reason(str(error), what)
        kind = InvalidArgumentError if reason.is_refusal else UnavailableError
        raise kind(f"{self.uri} cannot be asked: {reason.text}") from error
