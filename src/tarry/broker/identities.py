"""Identities and their credentials, kept in one small file that is replaced as a whole.

Once a credential exists, every port asks who callers are. The broker then also writes ``admin.token``, a token of its
own that is made anew at each start: whoever may read the data directory may do everything anyway.

Format: ``docs/formats.md``.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from tarry.api import operations as ops
from tarry.api.access import check_description, digest_of
from tarry.api.identities import AccessDecision, Credential, Identity, IssuedCredential, WhoIs, check_name, new_token
from tarry.api.needs import Right
from tarry.base.clock import Clock
from tarry.base.errors import CorruptError, InvalidArgumentError, NotFoundError
from tarry.identity.file import FILE
from tarry.identity.grants import Grant
from tarry.identity.principal import LOCAL
from tarry.identity.rights import Rights
from tarry.link.credentials import ADMIN_TOKEN_FILE
from tarry.log.files import Files
from tarry.log.json_file import change_json, make_private, read_json

VERSION = 1
ADMIN = "local-admin"
"""Identity of whoever shows the token in that file."""
IDENTITIES_MAX = 10_000
CREDENTIALS_MAX = 100
GRANTS_MAX = 1000
_ID_BYTES = 6


class Identities:
    """The identities of a broker. Any thread.

    A change is durable when the call returns, or nothing was changed.
    """

    def __init__(self, files: Files, clock: Clock, directory: Path, *, is_needed: bool = False) -> None:
        """Read what is on disk, and make the token of this start.

        ``is_needed``: the file has been there before. Without it the broker would ask nobody who they are.

        Raises:
            CorruptError: it is damaged or of another version; or it is needed, and missing.
        """
        self._files = files
        self._clock = clock
        self._directory = directory
        self._path = directory / FILE
        self._lock = threading.Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._token: str | None = None
        self.unguarded: list[str] = []
        """Ports that are open and cannot ask who their callers are: with one, there may be no credential."""
        self._kept: tuple[Identity, ...] = self._read(is_needed)
        self.snapshot: tuple[Identity, ...] = ()
        """Identities with a credential, and the broker's own; none: nobody is asked.

        Each change makes a new object, so that a reader can tell whether its own is stale.
        """
        self._publish()

    def set(self, request: ops.SetIdentity) -> Identity:
        """Make or change an identity: see :class:`tarry.api.operations.SetIdentity`."""
        check_name(request.name)
        if request.name in (ADMIN, LOCAL.name):
            raise InvalidArgumentError(f"identity {request.name!r} is the broker's own; allowed: another name")
        check_description(request.description or "")
        grants = None if request.grants is None else _checked(request.grants)
        with self._lock:
            found = next((each for each in self._kept if each.name == request.name), None)
            if found is None and len(self._kept) >= IDENTITIES_MAX:
                raise InvalidArgumentError(f"there are {len(self._kept)} identities; allowed: {IDENTITIES_MAX}")
            former = found or Identity(request.name, [], "", self._clock.now_ms(), [])
            changed = replace(
                former,
                grants=former.grants if grants is None else grants,
                description=former.description if request.description is None else request.description,
            )
            self._change([*(each for each in self._kept if each is not found), changed])
        return changed

    def all(self, request: ops.ListIdentities) -> list[Identity]:
        """List the identities: see :class:`tarry.api.operations.ListIdentities`."""
        return list(self._kept)

    def delete(self, request: ops.DeleteIdentity) -> None:
        """Forget an identity: see :class:`tarry.api.operations.DeleteIdentity`."""
        with self._lock:
            found = self._find(request.name)
            self._change([each for each in self._kept if each is not found])

    def add_credential(self, request: ops.AddCredential) -> IssuedCredential:
        """Make a token: see :class:`tarry.api.operations.AddCredential`."""
        check_description(request.description)
        now_ms = self._clock.now_ms()
        if request.expires_ms is not None and request.expires_ms <= now_ms:
            raise InvalidArgumentError(f"expires_ms is {request.expires_ms}; allowed: later than now, {now_ms}")
        token, id = new_token(), secrets.token_hex(_ID_BYTES)
        made = Credential(id, "token", request.description, now_ms, request.expires_ms, digest_of(token))
        with self._lock:
            found = self._find(request.identity)
            if len(found.credentials) >= CREDENTIALS_MAX:
                raise InvalidArgumentError(
                    f"{found.name} has {len(found.credentials)} credentials; allowed: {CREDENTIALS_MAX}"
                )
            self._replace(found, [*found.credentials, made])
        return IssuedCredential(id, request.identity, token, request.expires_ms)

    def remove_credential(self, request: ops.RemoveCredential) -> None:
        """Refuse a credential from now on: see :class:`tarry.api.operations.RemoveCredential`."""
        with self._lock:
            for identity in self._kept:
                rest = [each for each in identity.credentials if each.id != request.id]
                if len(rest) < len(identity.credentials):
                    self._replace(identity, rest)
                    return
        raise NotFoundError(f"there is no credential {request.id!r:.80}; allowed: the id of one that is listed")

    def who_am_i(self, request: ops.WhoAmI) -> WhoIs:
        """Answer a caller who was not asked for a credential: see :class:`tarry.api.operations.WhoAmI`."""
        return WhoIs(LOCAL.name, [str(grant) for grant in LOCAL.rights.grants], None)

    def check_access(self, request: ops.CheckAccess) -> AccessDecision:
        """Return whether an identity has a right: see :class:`tarry.api.operations.CheckAccess`."""
        if request.identity in (None, LOCAL.name, ADMIN):
            return AccessDecision(request.identity or LOCAL.name, allowed=True)
        assert request.identity is not None
        rights = rights_of(self._find(request.identity))
        return AccessDecision(request.identity, rights.allow(Right(request.right), request.topic, request.group))

    def listen(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after each change, in the thread that made it; return a function that ends this.

        It must be quick, and not raise.
        """

        def stop() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not on_change)

        with self._lock:
            self._listeners = (*self._listeners, on_change)
        return stop

    def close(self) -> None:
        """Remove the token of this start."""
        if self._token is not None:
            self._files.remove(self._directory / ADMIN_TOKEN_FILE)

    def _find(self, name: str) -> Identity:
        for identity in self._kept:
            if identity.name == name:
                return identity
        raise NotFoundError(f"there is no identity {name!r:.300}; allowed: the name of one that is listed")

    def _replace(self, identity: Identity, credentials: list[Credential]) -> None:
        changed = replace(identity, credentials=credentials)
        self._change([changed if each is identity else each for each in self._kept])

    def _change(self, identities: list[Identity]) -> None:
        known = [each for each in identities if each.credentials]
        if known and not any(rights_of(each).is_admin for each in known):
            raise InvalidArgumentError(
                "nobody who has a credential would have the right admin, so nobody could change identities; "
                'allowed: first an identity with the grant "admin" and a credential'
            )
        if known and self.unguarded:
            raise InvalidArgumentError(
                f"{', '.join(self.unguarded)} cannot ask who callers are yet, so a credential would protect nothing; "
                "allowed: a broker without these ports"
            )
        ordered = tuple(sorted(identities, key=lambda each: each.name))
        fields = {"identities": [asdict(identity) for identity in ordered]}
        change_json(self._files, self._path, VERSION, fields, mode=0o600)
        self._kept = ordered
        self._publish()
        for on_change in self._listeners:
            on_change()

    def _publish(self) -> None:
        known = tuple(each for each in self._kept if each.credentials)
        if known:
            known = (*known, self._own())
        self.snapshot = known

    def _own(self) -> Identity:
        """Return the broker's own identity, whose token is in the directory."""
        if self._token is None:
            token = new_token()
            path = self._directory / ADMIN_TOKEN_FILE
            make_private(path, 0o600)
            self._files.replace(path, token.encode() + b"\n")
            self._token = token
        now_ms = self._clock.now_ms()
        made = Credential(ADMIN_TOKEN_FILE, "token", "", now_ms, None, digest_of(self._token))
        return Identity(ADMIN, [Right.ADMIN.value], "", now_ms, [made])

    def _read(self, is_needed: bool) -> tuple[Identity, ...]:
        fields = read_json(self._path, [VERSION])
        if fields is None and is_needed:
            raise CorruptError(
                f"{self._path} is missing, and without it this broker would ask nobody who they are; restore it from a "
                "copy, or make the first identity again while the broker is stopped (tarry identity create --data)"
            )
        if fields is None:
            return ()
        try:
            identities = tuple(
                Identity(**{**each, "credentials": [Credential(**one) for one in each["credentials"]]})
                for each in fields["identities"]
            )
            for identity in identities:
                rights_of(identity)
        except (KeyError, TypeError, InvalidArgumentError) as error:
            raise CorruptError(f"{self._path} is damaged: {error}") from error
        return identities


def rights_of(identity: Identity) -> Rights:
    """Return the rights that an identity's grants give it."""
    return Rights(map(Grant.parse, identity.grants))


def _checked(grants: list[str]) -> list[str]:
    if len(grants) > GRANTS_MAX:
        raise InvalidArgumentError(f"{len(grants)} grants; allowed: {GRANTS_MAX}")
    return list(dict.fromkeys(str(Grant.parse(line)) for line in grants))
