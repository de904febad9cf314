"""Identities and their credentials, kept in one small file that is replaced as a whole.

Once a credential exists, every port asks who callers are. The broker then also writes ``admin.token``, a token of its
own that is made anew at each start: whoever may read the data directory may do everything anyway.

Format: ``docs/formats.md``.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from tarry.api import operations as ops
from tarry.api.access import check_description, digest_of
from tarry.api.certificate_names import checked_name
from tarry.api.identities import (
    ANONYMOUS,
    AccessDecision,
    Credential,
    Identity,
    IssuedCredential,
    WhoIs,
    check_access_key,
    check_name,
    new_access_key,
    new_secret,
    new_token,
    shown,
)
from tarry.api.issuers import check_claim
from tarry.api.needs import Right
from tarry.api.quotas import Quotas, QuotaUse
from tarry.base.clock import Clock
from tarry.base.delay import format_ms
from tarry.base.errors import CorruptError, InvalidArgumentError, NotFoundError
from tarry.base.listeners import Listeners
from tarry.broker.access_secrets import AccessSecrets
from tarry.broker.anonymous import check_for_anybody, warn_of_another, with_anonymous
from tarry.broker.credential_days import CredentialDays
from tarry.broker.lock_out import WaysIn
from tarry.identity.accounts import AccountBook
from tarry.identity.file import FILE, VERSION
from tarry.identity.grants import Grant
from tarry.identity.issuers import Issuers
from tarry.identity.principal import LOCAL, Principal
from tarry.identity.rights import Rights
from tarry.link.credentials import ADMIN_TOKEN_FILE
from tarry.log.files import Files
from tarry.log.json_file import change_json, make_private, read_json

log = logging.getLogger(__name__)

ADMIN = "local-admin"
"""Identity of whoever shows the token in that file."""
PIPELINE = "local-pipeline"
"""Identity of the pipeline that ``tarry serve`` has started."""
OWN_GRANTS = {ADMIN: [Right.ADMIN.value], PIPELINE: [Right.PIPELINE.value]}
"""Rights of the broker's own identities, which are in no file."""
IDENTITIES_MAX = 10_000
CREDENTIALS_MAX = 100
GRANTS_MAX = 1000
_ID_BYTES = 6


class Identities:
    """The identities of a broker. Any thread.

    A change is durable when the call returns, or nothing was changed.
    """

    def __init__(
        self,
        files: Files,
        clock: Clock,
        directory: Path,
        issuers: Issuers | None = None,
    ) -> None:
        """Read what is on disk, and make the token of this start.

        Raises:
            CorruptError: it is damaged or of another version, or the key of the secrets in it is missing.
        """
        self._files = files
        self._clock = clock
        self._directory = directory
        self._path = directory / FILE
        self._lock = threading.Lock()
        self._listeners = Listeners()
        self.listen = self._listeners.add
        """Have a function called after each change, in the thread that made it: see :meth:`Listeners.add`."""
        self._token: str | None = None
        self._pipeline_token: str | None = None
        self.unguarded: list[str] = []
        """Ports that are open and cannot ask who their callers are: with one, there may be no credential."""
        self.exposed: dict[str, str] = {}
        """Ports that other machines reach since callers are asked, by name: one has to be known still."""
        self._secrets = AccessSecrets(files, directory)
        self._kept: tuple[Identity, ...] = self._read()
        self._listed = self._kept
        """The same, the one that is for whoever shows no credential with something to be known by."""
        self.snapshot: tuple[Identity, ...] = ()
        """Identities with a credential, and the broker's own; none: nobody is asked.

        Each change makes a new object, so that a reader can tell whether its own is stale.
        """
        self.accounts = AccountBook(clock)
        """The use of each identity, held against its quotas."""
        self.issuers = issuers or Issuers((), clock)
        """The providers whose tokens are taken."""
        self.ways_in = WaysIn(frozenset(each.url for each in self.issuers.all))
        """The credentials that keep somebody able to change identities."""
        self.ways_in.warn(self._kept, clock.now_ms())
        warn_of_another(self._kept)
        self.days = CredentialDays(files, clock, directory)
        """The days on which credentials were used last."""
        self._publish()

    def set(self, request: ops.SetIdentity) -> Identity:
        """Make or change an identity: see :class:`tarry.api.operations.SetIdentity`."""
        check_name(request.name)
        if request.name in (*OWN_GRANTS, LOCAL.name):
            raise InvalidArgumentError(f"identity {request.name!r} is the broker's own; allowed: another name")
        if request.name == ANONYMOUS:
            check_for_anybody(request.grants or [])
        check_description(request.description or "")
        grants = None if request.grants is None else _checked(request.grants)
        quotas = None if request.quotas is None else Quotas.of(request.quotas).limits()
        with self._lock:
            found = next((each for each in self._kept if each.name == request.name), None)
            if found is None and len(self._kept) >= IDENTITIES_MAX:
                raise InvalidArgumentError(f"there are {len(self._kept)} identities; allowed: {IDENTITIES_MAX}")
            former = found or Identity(request.name, [], "", self._clock.now_ms(), [])
            changed = replace(
                former,
                grants=former.grants if grants is None else grants,
                description=former.description if request.description is None else request.description,
                quotas=former.quotas if quotas is None else quotas,
            )
            self._change([*(each for each in self._kept if each is not found), changed])
        return shown(changed)

    def all(self, request: ops.ListIdentities) -> list[Identity]:
        """List the identities: see :class:`tarry.api.operations.ListIdentities`."""
        self.days.take()
        return [
            replace(each, credentials=[replace(one, last_used=self.days.of(one)) for one in each.credentials])
            for each in map(shown, self._listed)
        ]

    def keep_days(self) -> None:
        """Write on which days credentials were used, if that is due.

        Raises:
            OSError: the disk is full, for example; it is tried again.
        """
        self.days.look(self._listed)

    def delete(self, request: ops.DeleteIdentity) -> None:
        """Forget an identity: see :class:`tarry.api.operations.DeleteIdentity`."""
        with self._lock:
            found = self._find(request.name)
            self._change([each for each in self._kept if each is not found])

    def add_credential(self, request: ops.AddCredential) -> IssuedCredential:
        """Make a credential: see :class:`tarry.api.operations.AddCredential`."""
        check_description(request.description)
        if request.identity == ANONYMOUS:
            raise InvalidArgumentError(
                f"{ANONYMOUS} is whoever shows no credential, so it can have none; allowed: another identity"
            )
        now_ms = self._clock.now_ms()
        if request.expires_ms is not None and request.expires_ms <= now_ms:
            raise InvalidArgumentError(
                f"expires_ms is {request.expires_ms} ({format_ms(request.expires_ms)}); allowed: later than now, "
                f"{format_ms(now_ms)}"
            )
        made, secret = _made(request, now_ms, self._issuer(request))
        with self._lock:
            found = self._find(request.identity)
            if len(found.credentials) >= CREDENTIALS_MAX:
                raise InvalidArgumentError(
                    f"{found.name} has {len(found.credentials)} credentials; allowed: {CREDENTIALS_MAX}"
                )
            self._check_free(made)
            keeping: AbstractContextManager[None] = nullcontext()
            if made.access_key is not None:
                keeping = self._secrets.adding(made.id, made.access_key, secret)
            with keeping:
                self._replace(found, [*found.credentials, made])
        return IssuedCredential(
            made.id, request.identity, secret, made.expires_ms, made.access_key, made.san, made.issuer, made.claim
        )

    def access_secret(self, credential: str) -> bytes | None:
        """Return the secret of an access key: see :meth:`tarry.api.local.AnyBroker.access_secret`."""
        return self._secrets.find(credential)

    def remove_credential(self, request: ops.RemoveCredential) -> None:
        """Refuse a credential from now on: see :class:`tarry.api.operations.RemoveCredential`."""
        with self._lock:
            for identity in self._kept:
                rest = [each for each in identity.credentials if each.id != request.id]
                if len(rest) < len(identity.credentials):
                    self._replace(identity, rest)
                    return
            if request.id == ANONYMOUS and any(each.name == ANONYMOUS for each in self._kept):
                raise InvalidArgumentError(
                    f"{ANONYMOUS} shows no credential that could be removed; allowed: tarry identity delete {ANONYMOUS}"
                )
        raise NotFoundError(f"there is no credential {request.id!r:.80}; allowed: the id of one that is listed")

    def details_of(self, operation: object) -> dict[str, str]:
        """Return what the audit log has of an operation beside its fields: whose a credential is."""
        if not isinstance(operation, ops.RemoveCredential):
            return {}
        for identity in self._kept:
            if any(each.id == operation.id for each in identity.credentials):
                return {"identity": identity.name}
        return {}

    def quota_use(self, request: ops.GetQuotaUse) -> list[QuotaUse]:
        """Return what identities use: see :class:`tarry.api.operations.GetQuotaUse`."""
        names = [each.name for each in self._kept] if request.identity is None else [self._find(request.identity).name]
        return [self.accounts.of(name).use() for name in names]

    def who_am_i(self, request: ops.WhoAmI) -> WhoIs:
        """Answer a caller who was not asked for a credential: see :class:`tarry.api.operations.WhoAmI`."""
        return LOCAL.who()

    def check_access(self, request: ops.CheckAccess) -> AccessDecision:
        """Return whether an identity has a right: see :class:`tarry.api.operations.CheckAccess`."""
        name = request.identity or LOCAL.name
        if name == LOCAL.name:
            return LOCAL.decide(request)
        grants = OWN_GRANTS[name] if name in OWN_GRANTS else self._find(name).grants
        return Principal(name, Rights.of(grants)).decide(request)

    def pipeline_token(self) -> str:
        """Make the token by which the pipeline of this process is known from now on, and return it.

        It is kept in memory alone, so each start has another. While there are no identities, nobody asks for it.
        """
        with self._lock:
            self._pipeline_token = new_token()
            self._publish()
            self._listeners.tell()
            return self._pipeline_token

    def close(self) -> None:
        """Remove the token of this start, write what has been used, and fetch no more keys."""
        self.issuers.close()
        self.days.take()
        try:
            self.days.write(self._listed)
        except OSError as error:
            log.warning("when credentials were used could not be written: %s", error)
        if self._token is not None:
            self._files.remove(self._directory / ADMIN_TOKEN_FILE)

    def _issuer(self, request: ops.AddCredential) -> str | None:
        """Return the provider of the tokens of a new credential; None: it is another kind.

        Raises:
            InvalidArgumentError: there is no such one, or there are several.
        """
        return self.issuers.find(request.issuer) if request.kind == "jwt" else None

    def _check_free(self, made: Credential) -> None:
        """Refuse a second credential by which the same caller would be known."""
        for identity in self._kept:
            for each in identity.credentials:
                if made.access_key is not None and each.access_key == made.access_key:
                    raise InvalidArgumentError(
                        f"{identity.name} has the access key {made.access_key!r} already; allowed: another"
                    )
                if made.claim is not None and (each.claim, each.issuer) == (made.claim, made.issuer):
                    raise InvalidArgumentError(
                        f"{identity.name} has the claim {made.claim!r:.300} already (credential {each.id}); "
                        "allowed: another"
                    )
                if made.san is not None and each.san == made.san:
                    raise InvalidArgumentError(
                        f"{identity.name} has the certificate's name {made.san!r:.300} already (credential {each.id}); "
                        "allowed: another"
                    )

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
        now_ms = self._clock.now_ms()
        self.ways_in.check(self._kept, identities, now_ms)
        if known and self.unguarded:
            raise InvalidArgumentError(
                f"{', '.join(self.unguarded)} cannot ask who callers are yet, so a credential would protect nothing; "
                "allowed: a broker without these ports"
            )
        if self.exposed and not known and self.snapshot:
            ports = ", ".join(f"{name} on {address}" for name, address in self.exposed.items())
            raise InvalidArgumentError(
                f"without this last credential nobody would be asked, and other machines reach {ports}; allowed: "
                "another credential first, or the broker stopped and set to this machine's own addresses"
            )
        ordered = tuple(sorted(identities, key=lambda each: each.name))
        ids = {credential.id for identity in ordered for credential in identity.credentials}
        fields = {"identities": [asdict(identity) for identity in ordered], "sealed": self._secrets.sealed(ids)}
        change_json(self._files, self._path, VERSION, fields, mode=0o600)
        self._secrets.keep(ids)
        self._kept = ordered
        self.ways_in.warn(ordered, now_ms)
        self._publish()
        self._listeners.tell()

    def _publish(self) -> None:
        self._listed = with_anonymous(self._kept)
        known = tuple(each for each in self._kept if each.credentials)
        if known:
            known = (*(each for each in self._listed if each.credentials), *self._own())
        self.accounts.update(known)
        self.snapshot = known

    def _own(self) -> list[Identity]:
        """Return the broker's own identities: of the token in the directory, and of the pipeline."""
        if self._token is None:
            token = new_token()
            path = self._directory / ADMIN_TOKEN_FILE
            make_private(path, 0o600)
            self._files.replace(path, token.encode() + b"\n")
            self._token = token
        own = [self._own_identity(ADMIN, ADMIN_TOKEN_FILE, self._token)]
        if self._pipeline_token is not None:
            own.append(self._own_identity(PIPELINE, PIPELINE, self._pipeline_token))
        return own

    def _own_identity(self, name: str, id: str, token: str) -> Identity:
        now_ms = self._clock.now_ms()
        credential = Credential(id, "token", "", now_ms, None, digest_of(token))
        return Identity(name, list(OWN_GRANTS[name]), "", now_ms, [credential])

    def _read(self) -> tuple[Identity, ...]:
        fields = read_json(self._path, [VERSION])
        if fields is None:
            return ()
        try:
            identities = tuple(
                Identity(**{**each, "credentials": [Credential(**one) for one in each["credentials"]]})
                for each in fields["identities"]
            )
            for identity in identities:
                Rights.of(identity.grants)
                Quotas.of(identity.quotas)
            sealed: Mapping[str, str] = fields.get("sealed", {})
            for credential in (each for identity in identities for each in identity.credentials):
                if credential.access_key is not None:
                    self._secrets.unseal(credential.id, credential.access_key, sealed[credential.id])
        except (KeyError, TypeError, ValueError, InvalidArgumentError) as error:
            raise CorruptError(f"{self._path} is damaged: {error}") from error
        return identities


def _made(request: ops.AddCredential, now_ms: int, issuer: str | None) -> tuple[Credential, str]:
    """Return a new credential, and its secret, which is empty if others have made it.

    Raises:
        InvalidArgumentError: a value is not allowed.
    """
    access_key, san, digest, secret = request.access_key, None, "", ""
    if request.kind == "token":
        secret = new_token()
        digest = digest_of(secret)
    elif request.kind == "access_key":
        secret = new_secret() if request.secret is None else request.secret
        access_key = new_access_key() if access_key is None else access_key
        check_access_key(access_key, secret)
    elif request.kind == "certificate":
        san = checked_name(request.san or "")
    else:
        check_claim(request.claim or "")
    id = secrets.token_hex(_ID_BYTES)
    made = Credential(
        id,
        request.kind,
        request.description,
        now_ms,
        request.expires_ms,
        digest,
        access_key,
        san,
        issuer,
        request.claim,
    )
    return made, secret


def _checked(grants: list[str]) -> list[str]:
    if len(grants) > GRANTS_MAX:
        raise InvalidArgumentError(f"{len(grants)} grants; allowed: {GRANTS_MAX}")
    return list(dict.fromkeys(str(Grant.parse(line)) for line in grants))
