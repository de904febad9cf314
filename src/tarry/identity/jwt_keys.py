"""Public keys of a provider (JWKS): from a file, which is read again when it changes, or as told."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tarry.base.clock import Clock
from tarry.base.errors import InvalidArgumentError
from tarry.base.extras import missing_extra
from tarry.base.file_changes import FileChanges

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

OnChange = Callable[[], None]


class KeySource(Protocol):
    """The place that keys come from. Any thread."""

    @property
    def keys(self) -> KeySet | None:
        """The last good keys; None: there were none yet. Another object after each change."""
        ...

    def look(self) -> KeySet | None:
        """Have newer keys looked for, if it is time, and return :attr:`keys`. It is quick."""
        ...

    def ask_again(self) -> None:
        """Have newer keys looked for soon: a token names one that is not among them."""
        ...

    def close(self) -> None:
        """Look for no more."""
        ...


class FileKeys:
    """Keys in a file."""

    def __init__(self, path: str, clock: Clock, on_change: OnChange) -> None:
        """Read the file; ``on_change`` is called when it was read again.

        Raises:
            InvalidArgumentError: it has no keys, or a package is missing.
        """
        self._path, self._on_change = Path(path), on_change
        self._lock = threading.Lock()
        self._changes = FileChanges([path], lambda: clock.now_ms() / 1000)
        self.keys: KeySet | None = self._read()

    def look(self) -> KeySet | None:
        """Return the keys of the file as it is now, or of the last good one."""
        with self._lock:
            is_new = self._changes.found() and self._read_again()
        if is_new:
            self._on_change()
        return self.keys

    def ask_again(self) -> None:
        """Do nothing: whoever makes the file decides when it changes."""

    def close(self) -> None:
        """Do nothing: it is looked at when somebody asks."""

    def _read_again(self) -> bool:
        try:
            self.keys = self._read()
        except InvalidArgumentError as error:
            _log.error("the last good keys stay in use: %s", error)
            return False
        return True

    def _read(self) -> KeySet:
        try:
            return public_keys(self._path.read_bytes(), f"jwt_keys_file {self._path}")
        except OSError as error:
            raise InvalidArgumentError(f"jwt_keys_file {self._path}: {error.strerror or error}; {_WANTED}") from error


class ToldKeys:
    """Keys that somebody tells, who has them from the provider."""

    def __init__(self, told: Any, ask: OnChange) -> None:
        """``told``: a key set as JSON has it, or None; ``ask`` is called when there may be newer ones.

        Raises:
            InvalidArgumentError: it has no keys, or a package is missing.
        """
        self.keys: KeySet | None = None if told is None else _imported(told, "what the broker tells")
        self._ask = ask

    def look(self) -> KeySet | None:
        """Return the keys that were told."""
        return self.keys

    def ask_again(self) -> None:
        """Tell the other side."""
        self._ask()

    def close(self) -> None:
        """Do nothing."""


_WANTED = "allowed: a JSON Web Key Set, with public keys"


def public_keys(content: bytes, name: str) -> KeySet:
    """Return the public keys for signatures in a JWKS; ``name`` says where it is from.

    Raises:
        InvalidArgumentError: there are none, or a package is missing.
    """
    try:
        return _imported(json.loads(content), name)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{name} has no keys; {_WANTED}") from error


def _imported(told: Any, name: str) -> KeySet:
    try:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet
    except ImportError as error:
        raise InvalidArgumentError(missing_extra("jwt_issuer", "jwt", error)) from error
    try:
        public = [key for key in told["keys"] if key.get("kty") != "oct" and key.get("use") in (None, "sig")]
        # Of a provider that publishes private keys, too, only the public parts are kept.
        return KeySet.import_key_set(KeySet.import_key_set({"keys": public}).as_dict(private=False))
    except (JoseError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidArgumentError(f"{name} has no keys; {_WANTED}") from error
