"""Public keys of a provider, fetched by URL: at the start, now and then, and for unknown ones.

Each time a thread of its own fetches them, so that no event loop and no start waits for a provider. A provider that
does not answer, or answers nonsense, leaves the last good keys in use.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from tarry.base.addresses import AddressPolicy
from tarry.base.clock import Clock
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.base.event_loop import post
from tarry.base.extras import missing_extra
from tarry.base.issuer_settings import IssuerSettings, check_provider_url
from tarry.identity.jwt_keys import OnChange, public_keys
from tarry.identity.provider_requests import ANSWER_BYTES_MAX, ANSWER_S, discover, fetch

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

log = logging.getLogger(__name__)

REFRESH_MS = 300_000
"""Milliseconds between two times that keys are fetched, while all is well."""
AGAIN_MS = 60_000
"""Milliseconds at least, if a token names a key that is not among them, or the last time was in vain."""
FIRST_MS = 10_000
"""Milliseconds at least, while there are no keys at all."""
START_S = 5.0
"""Seconds that a start waits for the keys."""


class FetchedKeys:
    """Keys of one provider. Any thread."""

    def __init__(
        self, settings: IssuerSettings, policy: AddressPolicy, ca_file: str | None, clock: Clock, on_change: OnChange
    ) -> None:
        """Fetch nothing yet; ``on_change`` is called when there are others, in whichever thread.

        Raises:
            InvalidArgumentError: a package is missing.
        """
        try:
            import joserfc  # noqa: F401 - is it there?

            from tarry.outbound.client import HttpClient
        except ImportError as error:
            raise InvalidArgumentError(missing_extra("jwt_issuer", "jwt", error)) from error
        self._settings, self._clock, self._on_change = settings, clock, on_change
        self._new_client = partial(HttpClient, policy, ca_file, ANSWER_BYTES_MAX)
        self._lock = threading.Lock()
        self._content = b""
        self._is_closed = self._has_failed = False
        self._begun_ms: int | None = None
        self._thread: threading.Thread | None = None
        self._under_way: tuple[asyncio.AbstractEventLoop, asyncio.Task[bytes]] | None = None
        self.keys: KeySet | None = None
        """The last good ones."""

    def wait_first(self, timeout_s: float) -> None:
        """Wait until the first answer has come, but not long; the log has why there are no keys."""
        thread = self._thread
        if thread is not None:
            thread.join(max(0.0, timeout_s))
        if self.keys is None:
            log.warning(
                "the keys of the provider %s have not come; its tokens are refused until they do", self._settings.issuer
            )

    def look(self) -> KeySet | None:
        """Have the keys fetched if it is time, and return the last good ones."""
        wait_ms = FIRST_MS if self.keys is None else AGAIN_MS if self._has_failed else REFRESH_MS
        self._fetch_after(wait_ms)
        return self.keys

    def ask_again(self) -> None:
        """Have them fetched, unless they were a moment ago: strangers can cause this."""
        self._fetch_after(AGAIN_MS)

    def close(self) -> None:
        """End what is under way, and fetch them no more."""
        with self._lock:
            self._is_closed = True
            thread, under_way = self._thread, self._under_way
        if under_way is not None:
            loop, task = under_way
            post(loop, task.cancel)
        if thread is not None:
            thread.join(ANSWER_S)

    def _fetch_after(self, wait_ms: int) -> None:
        # Not the time of the answer: a provider that is slow is not asked more often for it. A clock may be set back.
        now_ms, begun_ms = self._clock.now_ms(), self._begun_ms
        if begun_ms is not None and abs(now_ms - begun_ms) < wait_ms:
            return
        with self._lock:
            if self._begun_ms == begun_ms:
                self._begin(now_ms)

    def _begin(self, now_ms: int) -> None:
        if self._is_closed or (self._thread is not None and self._thread.is_alive()):
            return
        self._begun_ms = now_ms
        self._thread = threading.Thread(target=self._run, name="tarry-provider-keys", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            content = asyncio.run(self._fetch())
            if content != self._content:
                keys = public_keys(content, f"the provider {self._settings.issuer}")
                self._content, self.keys = content, keys
                self._on_change()
                log.info("%d keys of the provider %s have come", len(keys.keys), self._settings.issuer)
            self._has_failed = False
        except asyncio.CancelledError:
            pass
        except TarryError as error:
            self._has_failed = True
            what = "its tokens are refused" if self.keys is None else "the last good keys stay in use"
            log.error("the provider %s: %s: %s", self._settings.issuer, what, error)
        except Exception as error:
            self._has_failed = True
            log.error("the keys of the provider %s", self._settings.issuer, exc_info=error)

    async def _fetch(self) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        with self._lock:
            self._under_way = asyncio.get_running_loop(), task
            if self._is_closed:
                raise asyncio.CancelledError
        client = self._new_client()
        try:
            url = self._settings.keys_url
            if url is None:
                url = check_provider_url(str((await discover(client, self._settings)).get("jwks_uri")), "jwks_uri")
            return await fetch(client, url)
        finally:
            await client.close()
            with self._lock:
                self._under_way = None
