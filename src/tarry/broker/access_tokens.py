"""Access tokens of the HTTP front, kept in one small file that is replaced as a whole.

Format: ``docs/formats.md``.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import asdict, replace
from pathlib import Path

from tarry.api.access import (
    AccessToken,
    CreatedToken,
    check_description,
    check_namespace,
    check_secret,
    digest_of,
    shown,
    token_id,
)
from tarry.api.operations import CreateToken, DeleteToken, LimitToken, ListTokens
from tarry.base.clock import Clock
from tarry.base.errors import CorruptError, InvalidArgumentError, NotFoundError
from tarry.base.listeners import Listeners
from tarry.log.files import Files
from tarry.log.json_file import change_json, read_json

VERSION = 1
FILE = "tokens.json"
TOKENS_MAX = 10_000
SECRET_BYTES = 24
LIMIT_MAX = 1 << 53
INTERVAL_MS_MAX = 86_400_000


class AccessTokens:
    """The access tokens of the HTTP front. Any thread.

    A change is durable when the call returns, or nothing was changed.
    """

    def __init__(self, files: Files, clock: Clock, directory: Path) -> None:
        """Read what is on disk.

        Raises:
            CorruptError: it is damaged, or of another version.
        """
        self._files = files
        self._clock = clock
        self._path = directory / FILE
        self._lock = threading.Lock()
        self._listeners = Listeners()
        self.listen = self._listeners.add
        """Have a function called after each change, in the thread that made it: see :meth:`Listeners.add`."""
        self.snapshot: tuple[AccessToken, ...] = self._read()
        """All tokens, oldest first.

        Each change makes a new object, so that a reader can tell whether its own is stale.
        """

    def create(self, request: CreateToken) -> CreatedToken:
        """Create an access token: see :class:`tarry.api.operations.CreateToken`."""
        check_namespace(request.namespace)
        check_description(request.description)
        secret = secrets.token_urlsafe(SECRET_BYTES) if request.secret is None else request.secret
        check_secret(secret)
        token = AccessToken(
            token_id(request.namespace, secret),
            request.namespace,
            request.description,
            self._clock.now_ms(),
            digest_of(secret),
        )
        with self._lock:
            if any(known.id == token.id for known in self.snapshot):
                raise InvalidArgumentError(
                    f"namespace {request.namespace} has a token of this secret, {token.id}; allowed: another secret"
                )
            if len(self.snapshot) >= TOKENS_MAX:
                raise InvalidArgumentError(f"there are {len(self.snapshot)} tokens; allowed: {TOKENS_MAX}")
            self._change((*self.snapshot, token))
        return CreatedToken(token.id, secret, token.namespace, token.description)

    def list(self, request: ListTokens) -> list[AccessToken]:
        """List the access tokens: see :class:`tarry.api.operations.ListTokens`."""
        return [shown(token) for token in self.snapshot if request.namespace in (None, token.namespace)]

    def limit(self, request: LimitToken) -> AccessToken:
        """Limit the rate of an access token: see :class:`tarry.api.operations.LimitToken`."""
        for name in ("reads_max", "writes_max"):
            value = getattr(request, name)
            if not 0 <= value <= LIMIT_MAX:
                raise InvalidArgumentError(f"{name} is {value}; allowed: 0 (any number of times) to {LIMIT_MAX}")
        if not 1 <= request.interval_ms <= INTERVAL_MS_MAX:
            raise InvalidArgumentError(f"interval_ms is {request.interval_ms}; allowed: 1 to {INTERVAL_MS_MAX}")
        with self._lock:
            found = self._find(request.token)
            limited = replace(
                found,
                reads_max=request.reads_max,
                writes_max=request.writes_max,
                interval_ms=request.interval_ms if request.reads_max or request.writes_max else 0,
            )
            self._change(tuple(limited if token is found else token for token in self.snapshot))
        return shown(limited)

    def delete(self, request: DeleteToken) -> None:
        """Delete an access token: see :class:`tarry.api.operations.DeleteToken`."""
        with self._lock:
            found = self._find(request.token)
            self._change(tuple(token for token in self.snapshot if token is not found))

    def _find(self, id: str) -> AccessToken:
        for token in self.snapshot:
            if token.id == id:
                return token
        raise NotFoundError(f"there is no access token {id!r:.80}; allowed: the id of one that is listed")

    def _change(self, tokens: tuple[AccessToken, ...]) -> None:
        change_json(self._files, self._path, VERSION, {"tokens": [asdict(token) for token in tokens]}, mode=0o600)
        self.snapshot = tokens
        self._listeners.tell()

    def _read(self) -> tuple[AccessToken, ...]:
        fields = read_json(self._path, [VERSION])
        if fields is None:
            return ()
        try:
            return tuple(AccessToken(**token) for token in fields["tokens"])
        except (KeyError, TypeError) as error:
            raise CorruptError(f"{self._path} is damaged: {error}") from error
