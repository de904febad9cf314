"""TLS for servers, from a certificate file and its key file, read again when they change."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from tarry.api.audit import Reloaded
from tarry.base.certificates import ends_ms, fingerprints, state_of
from tarry.base.errors import InvalidArgumentError
from tarry.base.file_changes import FileChanges

log = logging.getLogger(__name__)

OnReload: TypeAlias = Callable[[Reloaded], None]
"""Called with what was read again. Be quick, never raise."""
OnClear: TypeAlias = Callable[[str], None]
"""Called with an address at which other machines may speak without TLS. Be quick, never raise."""

WARN_S = 86_400.0
"""Seconds between warnings of a certificate that ends soon."""
WARNINGS_MAX = 256
"""Certificates of which it is known when they were warned of; others are warned of once more."""
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
"""Versions of TLS that may be the oldest."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files."""

    certificate: str
    key: str
    client_ca: str | None = None
    """Authorities, one of which must have signed each client's certificate; None: clients need none."""
    is_client_optional: bool = False
    """True if a client need not show a certificate; one that it shows must be good nevertheless."""
    version_min: str = "1.2"
    """Oldest version of TLS: one of :data:`VERSIONS`."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that there are."""
        return tuple(path for path in (self.certificate, self.key, self.client_ca) if path is not None)


class EndWarning:
    """The warning that a certificate ends, which all listeners of a process share. Any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._said_s = float("-inf")

    def is_due(self, now_s: float) -> bool:
        """Return True once a day: whoever asks says it."""
        with self._lock:
            is_due = now_s - self._said_s >= WARN_S
            if is_due:
                self._said_s = now_s
            return is_due


@lru_cache(WARNINGS_MAX)
def warning_of(certificate: str, end_ms: int) -> EndWarning:
    """Return the warning of a certificate that ends then: another one in the same file has its own."""
    return EndWarning()


class ReloadedTls:
    """The TLS context of the files as they are now, or of the last good ones. On one thread."""

    def __init__(
        self,
        files: TlsFiles,
        alpn: tuple[str, ...] = (),
        clock_s: Callable[[], float] = time.monotonic,
        on_reload: OnReload | None = None,
    ) -> None:
        """Read the files; ``alpn`` names the protocols that clients may choose.

        ``on_reload`` is called when they were read again and are others, or cannot be used any more.

        Raises:
            InvalidArgumentError: the files are not a certificate and its key, or not authorities.
        """
        self._files = files
        self._alpn = alpn
        self._clock_s = clock_s
        self._changes = FileChanges(files.paths, clock_s)
        self._context = self._read()
        self._on_reload = on_reload
        self._told = self._told_of(None)
        self._warned_s = float("-inf")
        self._warn(clock_s())

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection. The files are checked at most once a second."""
        if self._changes.found():
            # Broken files are logged once, and read again when they change.
            self._read_again()
            self._warned_s = float("-inf")
        self._warn(self._clock_s())
        return self._context

    def _warn(self, now_s: float) -> None:
        """Say once a day that the certificate ends soon, or has ended; of ports that share it, one says it."""
        if now_s - self._warned_s < WARN_S:
            return
        self._warned_s = now_s
        end_ms = ends_ms(Path(self._files.certificate))
        state = "valid" if end_ms is None else state_of(end_ms, time.time_ns() // 1_000_000)
        if end_ms is not None and state != "valid" and warning_of(self._files.certificate, end_ms).is_due(now_s):
            end = datetime.fromtimestamp(end_ms / 1000, UTC).isoformat(" ", "seconds")
            text = "has expired: clients refuse it" if state == "expired" else "ends soon"
            log.warning("the certificate %s %s (%s); put another in its place", self._files.certificate, text, end)

    def _read_again(self) -> None:
        try:
            self._context = self._read()
        except InvalidArgumentError as error:
            log.error("the last good certificate stays in use: %s", error)
            self._tell(self._told_of(str(error)))
        else:
            log.info("the certificate %s was read again", self._files.certificate)
            self._tell(self._told_of(None))

    def _tell(self, now: Reloaded) -> None:
        before, self._told = self._told, now
        if now != before and self._on_reload is not None:
            self._on_reload(now)

    def _told_of(self, error: str | None) -> Reloaded:
        certificate, client_ca = self._files.certificate, self._files.client_ca
        authorities = None if client_ca is None else Path(client_ca)
        return Reloaded(certificate, {} if error else fingerprints(Path(certificate), authorities), error)

    def _read(self) -> ssl.SSLContext:
        context = server_context(self._files.certificate, self._files.key, self._files.client_ca)
        context.minimum_version = VERSIONS[self._files.version_min]
        if self._files.client_ca is not None and self._files.is_client_optional:
            context.verify_mode = ssl.CERT_OPTIONAL
        if self._alpn:
            context.set_alpn_protocols(list(self._alpn))
        return context


def server_context(certificate: str, key: str, client_ca: str | None = None) -> ssl.SSLContext:
    """Return a TLS context for a server, for TLS 1.2 or newer.

    With ``client_ca``, clients must show a certificate that one of its authorities has signed.

    Raises:
        InvalidArgumentError: the files are not a certificate and its key, or not authorities.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, certificate, key)
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise InvalidArgumentError(f"{client_ca!r} has no certificates, in PEM: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Give a context the certificate that it shows.

    Raises:
        InvalidArgumentError: the files are not a certificate and its key.
    """
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgumentError(
            f"{certificate!r} and {key!r} are no certificate and its private key, in PEM: {error}"
        ) from error
