"""An object store by the library ``obstore``: S3, and what speaks S3.

It is asked by threads of Python: its own would come into the interpreter with each answer, and abort a process that is
ending. The library would repeat requests after errors of the server, conditional ones too; it is told not to, for
:func:`~tarry.log.objects.store.asked` does it, and knows what a repetition may find. It reports 409 as "exists", too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.base.extras import missing_extra
from tarry.log.objects.http_client import client_options
from tarry.log.objects.s3_refusals import AskedStore, reason_of
from tarry.log.objects.store import StoreRefusal

A = TypeVar("A")
TIMEOUT, LARGE_TIMEOUT = timedelta(seconds=10), timedelta(seconds=120)
LARGE_BYTES = 1 << 20
"""A PUT of so much may take longer: a timeout would begin it again, and so for ever on a slow way."""
REQUESTS = 32
"""The most requests under way."""
NO_SUCH_KEY = "<Code>NoSuchKey</Code>"


def check_uri(uri: str) -> None:
    """Refuse what names no bucket, without a look at it.

    Raises:
        InvalidArgumentError: that is so.
    """
    if not uri.startswith("s3://") or not uri.removeprefix("s3://").partition("/")[0]:
        raise InvalidArgumentError(f"logs cannot be kept at {uri}; allowed: s3://BUCKET/PREFIX")


class S3Objects:
    """Objects below ``uri`` (``s3://bucket/prefix``).

    ``options``: what obstore calls configuration (``endpoint``, ``region``, ``access_key_id`` …); what is not given
    comes from the environment (``AWS_…``). ``client`` is for its HTTP client (``allow_http`` …).

    Raises:
        InvalidArgumentError: ``uri`` is no such URI, the extra ``objects`` is missing, or an option is unknown.
    """

    def __init__(self, uri: str, options: dict[str, Any] | None = None, client: dict[str, Any] | None = None) -> None:
        check_uri(uri)
        try:
            import obstore
            from obstore import store
            from obstore.exceptions import AlreadyExistsError, BaseError
        except ImportError as error:
            raise InvalidArgumentError(missing_extra(f"a log at {uri}", "objects", error)) from error
        self._obstore: Any = obstore
        self._exists, self._error = AlreadyExistsError, BaseError
        self._uri = uri
        self._threads = ThreadPoolExecutor(REQUESTS, thread_name_prefix="tarry-log-request")
        where = os.environ if options is None else {f"AWS_{name.upper()}": value for name, value in options.items()}
        self._asked = AskedStore.of(uri, where)
        http = client_options(self._asked.endpoint, TIMEOUT, client)
        made: Any = store.from_url  # typed by store; options are text here
        arguments = {"config": options or {}, "retry_config": {"max_retries": 0}}
        try:
            self._store = made(uri, client_options=http, **arguments)
            self._patient_store = made(uri, client_options={**http, "timeout": LARGE_TIMEOUT}, **arguments)
        except (BaseError, ValueError) as error:
            raise InvalidArgumentError(f"the store of the logs, {uri}: {error}") from error

    async def create(self, key: str, content: bytes) -> bool:
        try:
            store = self._store if len(content) < LARGE_BYTES else self._patient_store
            await self._answer(lambda: self._obstore.put(store, key, content, mode="create"), f"put {key}")
        except self._exists:
            return False
        except FileNotFoundError as error:
            self._fail(error, f"put {key}")  # no such bucket
        return True

    async def get(self, key: str) -> bytes | None:
        try:
            return await self._answer(lambda: bytes(self._obstore.get(self._store, key).bytes()), f"get {key}")
        except FileNotFoundError as error:
            # Not any 404: one of a missing bucket, or of a proxy, says nothing about the key.
            if NO_SUCH_KEY in str(error):
                return None
            self._fail(error, f"get {key}")

    async def exists(self, key: str) -> bool:
        # Not HEAD: its 404 has no body, and is the same where the bucket is missing. Price and time are the same.
        return await self.get(key) is not None

    async def list(self, prefix: str) -> list[str]:
        try:
            found = await self._answer(lambda: self._obstore.list(self._store, prefix).collect(), f"list {prefix}")
        except FileNotFoundError as error:
            self._fail(error, f"list {prefix}")
        return [each["path"] for each in found]

    async def delete(self, keys: Sequence[str]) -> None:
        what = f"delete {keys[0]}" + (f" and {len(keys) - 1} more" if len(keys) > 1 else "")
        store = self._store if len(keys) == 1 else self._patient_store
        try:
            await self._answer(lambda: self._obstore.delete(store, list(keys)), what)
        except FileNotFoundError as error:
            if NO_SUCH_KEY not in str(error):
                self._fail(error, what)

    async def _answer(self, request: Callable[[], A], what: str) -> A:
        future = asyncio.get_running_loop().run_in_executor(self._threads, request)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.gather(future, return_exceptions=True)  # else it would come back to a loop that is closed
            raise
        except (self._exists, FileNotFoundError):
            raise
        except (self._error, OSError, ValueError) as error:
            self._fail(error, what)

    def _fail(self, error: Exception, what: str) -> NoReturn:
        reason = reason_of(str(error), what, self._asked)
        cause = StoreRefusal(str(error)) if reason.is_refusal else error
        raise UnavailableError(f"{self._uri} cannot be asked: {reason.text}") from cause
