"""Secrets of access keys: in memory, and sealed in ``identities.json``.

A broker needs them to check signatures. They are sealed with AES-256-GCM, by a key that is derived from ``secret.key``.
So the file alone tells nothing of them; whoever has both files has the secrets.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tarry.base.errors import CorruptError
from tarry.broker.directory import SECRET_FILE, read_secret
from tarry.log.files import Files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
_PURPOSE = b"tarry: secrets of access keys"


class AccessSecrets:
    """Secrets by the id of their credential. Changes by one thread at a time; :meth:`find` by any."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self._cipher: AESGCM | None = None
        self._secrets: dict[str, bytes] = {}
        self._sealed: dict[str, str] = {}

    def find(self, id: str) -> bytes | None:
        """Return the secret of a credential; None: it is no access key, or was removed."""
        return self._secrets.get(id)

    def sealed(self, ids: Set[str]) -> dict[str, str]:
        """Return the sealed secrets of these credentials, as they are written."""
        return {id: text for id, text in self._sealed.items() if id in ids}

    def keep(self, ids: Set[str]) -> None:
        """Forget all but the secrets of these credentials."""
        # Copies are changed: other threads look them up meanwhile.
        self._secrets = {id: secret for id, secret in self._secrets.items() if id in ids}
        self._sealed = self.sealed(ids)

    @contextmanager
    def adding(self, id: str, access_key: str, secret: str) -> Iterator[None]:
        """Have a secret among the others; it is forgotten if its credential could not be written."""
        nonce = os.urandom(_NONCE_BYTES)
        text = nonce + self._aead().encrypt(nonce, secret.encode(), _bound(id, access_key))
        former = self._secrets, self._sealed
        self._secrets = {**self._secrets, id: secret.encode()}
        self._sealed = {**self._sealed, id: base64.b64encode(text).decode("ascii")}
        try:
            yield
        except BaseException:
            self._secrets, self._sealed = former
            raise

    def unseal(self, id: str, access_key: str, text: str) -> None:
        """Take a secret from its file.

        Raises:
            CorruptError: it was sealed by another key, or for another credential; or the key is missing.
            ValueError: it is no base64.
        """
        if has_lost_key(self._directory, text):
            raise lost_key(self._directory)  # and none is made: it would seem to be the wrong one
        cipher = self._aead()
        from cryptography.exceptions import InvalidTag

        raw = base64.b64decode(text, validate=True)
        try:
            secret = cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _bound(id, access_key))
        except InvalidTag as error:
            raise CorruptError(
                f"the secret of access key {access_key!r} was not sealed by {self._directory / SECRET_FILE}; "
                "restore that file and identities.json from one copy"
            ) from error
        self._secrets[id], self._sealed[id] = secret, text

    def _aead(self) -> AESGCM:
        if self._cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF

            secret = read_secret(self._files, self._directory)
            self._cipher = AESGCM(HKDF(SHA256(), 32, salt=None, info=_PURPOSE).derive(secret))
        return self._cipher


def has_lost_key(directory: Path, sealed: object) -> bool:
    """Return whether there is something that was sealed, and no key."""
    return bool(sealed) and not (directory / SECRET_FILE).exists()


def lost_key(directory: Path) -> CorruptError:
    """Return the refusal of a start without the key."""
    return CorruptError(
        f"{directory / SECRET_FILE} is missing, which had sealed the secrets of access keys in identities.json; "
        "restore it from the copy of which that file is, or remove that file and make all identities again while the "
        "broker is stopped (tarry identity create --data)"
    )


def _bound(id: str, access_key: str) -> bytes:
    """Return the text that a sealed secret is bound to.

    One that is moved to another credential cannot be opened.
    """
    return f"{id}\0{access_key}".encode()
