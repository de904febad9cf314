"""Finds out who a caller is, by the credential that it shows."""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from tarry.api.access import AccessToken, digest_of
from tarry.api.accounts import QuotaAccounts
from tarry.api.audit import NotesRefusals
from tarry.api.credential_uses import CredentialUses
from tarry.api.identities import ANONYMOUS, Credential, Identity, is_token
from tarry.api.issuers import ProviderLogin, TokenEvidence, TokenIssuer, VerifiedToken, is_jwt, issuer_of
from tarry.base.bounded_cache import BoundedCache
from tarry.base.clock import Clock
from tarry.base.errors import LoginReason, LoginRefusal, UnauthenticatedError
from tarry.identity.access_tokens import KnownTokens
from tarry.identity.credential_index import CredentialIndex, Owned
from tarry.identity.principal import LOCAL, Principal
from tarry.identity.rights import EVERYTHING, Rights

_WAYS = (
    "TARRY_TOKEN, TARRY_TOKEN_FILE, an entry of the broker's address in ~/.config/tarry/credentials.toml, the argument "
    "token of Client, or authorization: Bearer TOKEN of Flight"
)
VERIFIED_MAX = 10_000
"""Tokens of a provider that are remembered, so that each is verified once."""
HOUR_MS = 3_600_000
_NAMED_MAX = 8
"""Names of a certificate, or claims of a token, that a refusal repeats."""
OWNER = Principal("local-admin", EVERYTHING, "user")
"""The user that the broker runs as, by a Unix socket: it may read the data directory anyway."""


@dataclass(frozen=True, slots=True)
class AccessKey:
    """An access key that is known: whose it is, and what signatures are checked by."""

    principal: Principal
    secret: bytes = field(repr=False)
    expires_ms: int | None
    """It is refused from then on; None: never."""

    @property
    def id(self) -> str:
        """The credential's id."""
        return self.principal.credential or ""


class _KnownToken(NamedTuple):
    """A token of a provider that was verified, and what it was verified by."""

    principal: Principal
    credential: Credential
    identities: object
    issuer: TokenIssuer
    keys: object


class KnowsIdentities(Protocol):
    """A broker, as far as it is needed here."""

    @property
    def identities(self) -> tuple[Identity, ...]: ...
    @property
    def access_tokens(self) -> tuple[AccessToken, ...]: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def refusals(self) -> NotesRefusals: ...
    @property
    def accounts(self) -> QuotaAccounts: ...
    @property
    def credential_uses(self) -> CredentialUses: ...
    @property
    def token_issuers(self) -> Sequence[TokenIssuer]: ...
    def access_secret(self, credential: str) -> bytes | None: ...


class Authenticator:
    """Follows a broker's identities and access tokens: a change holds for the next call. On one thread.

    An access token is a credential, too, of a caller that has no name but the token's.
    """

    def __init__(self, broker: KnowsIdentities, front: str = "") -> None:
        """``front``: whose callers they are, for the audit log."""
        self._broker, self._front = broker, front
        self.notes = True
        """False where a refused caller is asked again elsewhere, and is noted there."""
        self.tokens = KnownTokens(broker, front)
        """The owners of access tokens, who are known also where nobody is asked."""
        self._seen: tuple[Identity, ...] = ()
        self._index = CredentialIndex(())
        self._principals: dict[str, Principal] = {}
        """Callers that have come, by their credential."""
        self._former: dict[str, Principal] = {}
        """Callers that came before the last change, and have not come since."""
        self._verified: BoundedCache[tuple[str, ProviderLogin | None], _KnownToken] = BoundedCache(VERIFIED_MAX)
        self._anonymous_peers: BoundedCache[str, int] = BoundedCache(VERIFIED_MAX)
        """By address from which somebody came who showed nothing, the hour in which that was told."""

    def note_use(self, credential: str) -> None:
        """Note that a credential was used, by its id; whoever checks a signature does it for an access key."""
        self._broker.credential_uses.note(credential)

    @property
    def asks(self) -> bool:
        """True if callers have to say who they are."""
        return bool(self._broker.identities)

    def by_token(
        self, token: str | None, certificate: Sequence[str] | None = None, *, peer: str | None = ""
    ) -> Principal:
        """Return the caller that shows a token; None: it shows none.

        ``certificate``: the names in its verified certificate. A token counts before it: one that is not taken is
        refused, whatever the certificate says. A refusal is noted, of the address ``peer``; None: the caller does that.

        Raises:
            UnauthenticatedError: it has to show one, or this one is not taken.
        """
        if token is None and certificate is not None:
            return self.by_certificate(certificate, peer)
        if not self.asks:
            return LOCAL  # it does not matter what a client has kept
        if token is None and (anonymous := self.by_nothing(peer)) is not None:
            return anonymous
        try:
            return self._by_token(token)
        except UnauthenticatedError as error:
            self.note_error(error, peer)
            raise

    def _by_token(self, token: str | None) -> Principal:
        if token is None:
            raise UnauthenticatedError(
                f"this broker asks who calls, and no token was shown; allowed: {_WAYS}", LoginRefusal("none_shown")
            )
        principal = self.by_secret(token)
        if principal is not None:
            return principal
        if self.takes_jwt(token):
            return self._by_jwt(token)
        reason = "is not known" if is_token(token) else "is no token: some of it is missing or mistyped"
        raise UnauthenticatedError(f"the token that was shown {reason}; allowed: one that was not removed")

    @property
    def takes_nothing(self) -> bool:
        """True if a caller that shows no credential at all is let in."""
        self._look()
        return ANONYMOUS in self._index.by_id

    def by_nothing(self, peer: str | None = None) -> Principal | None:
        """Return the caller that shows no credential at all; None: it has to show one.

        ``peer``: its address, for the audit log; None: nothing is noted. It is for whoever has found that nothing was
        shown. What was shown and is not taken is not nothing.
        """
        self._look()
        found = self._index.by_id.get(ANONYMOUS)
        if found is None:
            return None
        self.note_use(ANONYMOUS)
        if peer is not None:
            self._note_anonymous(self._principal(found), peer)
        return self._principal(found)

    def _note_anonymous(self, principal: Principal, peer: str) -> None:
        """Have the audit log tell once an hour of an address from which somebody comes so."""
        hour = self._broker.clock.now_ms() // HOUR_MS
        if self._anonymous_peers.get(peer) != hour:
            self._anonymous_peers.keep(peer, hour)
            self._broker.refusals.anonymous(principal.asks(peer))

    def note_refusal(self, reason: LoginReason, peer: str | None) -> None:
        """Note a caller at the address ``peer`` whose credential was not taken, or who has shown none.

        None: nothing is noted.
        """
        self._note(LoginRefusal(reason), peer)

    def note_error(self, error: UnauthenticatedError, peer: str | None) -> None:
        """Note a caller at the address ``peer`` who was refused by an error; None: nothing is noted."""
        self._note(error.refusal, peer)

    def _note(self, refusal: LoginRefusal, peer: str | None) -> None:
        if self.notes and peer is not None:
            self._broker.refusals.login(self._front, peer, refusal)

    def by_secret(self, secret: str) -> Principal | None:
        """Return whose credential or access token a secret is, even where nobody is asked; None: nobody's.

        Raises:
            UnauthenticatedError: it has expired.
        """
        self._look()
        if self._index.by_digest:
            digest = digest_of(secret)
            # The time of a look-up by hash reveals hashes at most, and nobody can choose those.
            found = self._index.by_digest.get(digest)
            if found is not None and hmac.compare_digest(found.credential.digest, digest):
                self._check_expiry(found.credential)
                self.note_use(found.credential.id)
                return self._principal(found)
        owner = self.tokens.identify(secret)
        return None if owner is None else owner.principal

    def takes_jwt(self, text: str) -> bool:
        """Return whether a text has the form of a provider's token, and there is a provider."""
        return is_jwt(text) and bool(self._broker.token_issuers)

    def by_login(self, token: str, login: ProviderLogin, *, peer: str | None = "") -> Principal:
        """Return who has logged in at a provider, by the ID token of that login, where somebody is asked.

        A refusal is noted, of the address ``peer``; None: the caller does that.

        Raises:
            UnauthenticatedError: the token is not of this login; no identity has one of its claims, or two have.
        """
        self._look()
        try:
            return self._by_jwt(token, login)
        except UnauthenticatedError as error:
            self.note_error(error, peer)
            raise

    def _by_jwt(self, token: str, login: ProviderLogin | None = None) -> Principal:
        """Return the caller whose token a provider has signed, by the claims in it.

        Raises:
            UnauthenticatedError: it is not taken; no identity has one of its claims, or two have.
        """
        shown, issuers = (digest_of(token), login), self._broker.token_issuers
        known = self._verified.get(shown)
        is_good = known is not None and known.identities is self._seen and known.issuer in issuers
        if known is None or not is_good or known.keys is not known.issuer.look():
            known = self._verified.keep(shown, self._verify(issuers, token, login))
        return self._good_now(known.principal, known.credential)

    def _good_now(self, principal: Principal, credential: Credential) -> Principal:
        self._check_expiry(credential)
        if principal.expires_ms is not None and principal.expires_ms <= self._broker.clock.now_ms():
            raise UnauthenticatedError(
                "the JSON Web Token that was shown has expired; allowed: a new one",
                LoginRefusal("expired", credential.id),
            )
        self.note_use(credential.id)
        return principal

    def _verify(self, issuers: Sequence[TokenIssuer], token: str, login: ProviderLogin | None) -> _KnownToken:
        if login is None:
            issuer = issuer_of(token, issuers)
        else:  # whatever the token says of itself
            issuer = next((each for each in issuers if each.url == login.issuer), None)
        if issuer is None:
            raise UnauthenticatedError(
                "the JSON Web Token that was shown is of no provider of the broker's settings; allowed: one of these",
                LoginRefusal("issuer"),
            )
        keys = issuer.look()
        principal, credential = self._owner(issuer.verify(token, login))
        return _KnownToken(principal, credential, self._seen, issuer, keys)

    def _owner(self, verified: VerifiedToken) -> tuple[Principal, Credential]:
        owned, evidence = self._owned(verified), TokenEvidence.of(verified, self._seen)
        principal = replace(self._principal(owned), expires_ms=verified.expires_ms, evidence=evidence)
        return principal, owned.credential

    def _owned(self, verified: VerifiedToken) -> Owned:
        found = [
            each
            for each in self._index.by_claim
            if each.credential.issuer == verified.issuer and verified.has(each.credential.claim or "")
        ]
        if len({each.identity.name for each in found}) != 1:
            claims = _shown(verified.grantable)
            of_nobody = f"which no identity has: {claims}; allowed: one of tarry identity add-jwt"
            why = f"which are of several identities: {claims}; allowed: those of one" if found else of_nobody
            raise UnauthenticatedError(
                f"the JSON Web Token that was shown is good, with claims {why}",
                LoginRefusal("claims", details=verified.details),
            )
        return found[0]

    def _holds(self, evidence: TokenEvidence) -> bool:
        """Return whether a token would be believed again, by the keys and the identities of now."""
        issuer = next((each for each in self._broker.token_issuers if each.url == evidence.issuer), None)
        if issuer is None or not issuer.has_key(evidence.key):
            return False
        if evidence.identities is not self._seen:
            try:
                self._owned(evidence.read())
            except UnauthenticatedError:
                return False
            evidence.identities = self._seen
        return True

    def by_certificate(self, names: Sequence[str], peer: str | None = None) -> Principal:
        """Return the caller whose certificate was verified, by the names in it.

        A refusal is noted, of the address ``peer``; None: the caller does that.

        Raises:
            UnauthenticatedError: no identity has one of these names, or two have; or the credential has expired.
        """
        if not self.asks:
            return LOCAL
        try:
            return self._by_certificate(names)
        except UnauthenticatedError as error:
            self.note_error(error, peer)
            raise

    def _by_certificate(self, names: Sequence[str]) -> Principal:
        self._look()
        found = [self._index.by_san[name] for name in names if name in self._index.by_san]
        if len({each.identity.name for each in found}) != 1:
            of_nobody = "which no identity has; allowed: a name of tarry identity add-certificate, or a token"
            why = "which are of several identities; allowed: those of one" if found else of_nobody
            raise UnauthenticatedError(f"the client's certificate names {_shown(names)}, {why}")
        credential = found[0].credential
        self._check_expiry(credential)
        self.note_use(credential.id)
        return self._principal(found[0])

    def by_access_key(self, name: str, peer: str | None = None) -> AccessKey | None:
        """Return an access key by its name, for a check of what was signed with it; None: no identity has it.

        A refusal is noted, of the address ``peer``; None: the caller does that.

        Raises:
            UnauthenticatedError: it has expired, or its secret is not known in this process.
        """
        self._look()
        found = self._index.by_access_key.get(name)
        if found is None:
            return None
        try:
            return self._access_key(name, found)
        except UnauthenticatedError as error:
            self.note_error(error, peer)
            raise

    def _access_key(self, name: str, owned: Owned) -> AccessKey:
        credential = owned.credential
        self._check_expiry(credential)
        secret = self._broker.access_secret(credential.id)
        if secret is None:
            raise UnauthenticatedError(
                f"the secret of access key {name!r:.80} is not known to this gateway; "
                "allowed: a token, a certificate, or a port of the broker's own machine",
                LoginRefusal("other", credential.id),
            )
        return AccessKey(self._principal(owned), secret, credential.expires_ms)

    def by_user(self, user: int) -> Principal | None:
        """Return the caller at the other end of a Unix socket, by its user; None: it has to say more."""
        if not self.asks:
            return LOCAL
        return OWNER if user in (0, os.geteuid()) else None

    @property
    def next_expiry_ms(self) -> int | None:
        """The instant at which a credential expires next; None: none does."""
        self._look()
        now_ms = self._broker.clock.now_ms()
        moments = (owned.credential.expires_ms for owned in self._index.by_id.values())
        return min((each for each in moments if each is not None and each > now_ms), default=None)

    def has_credential(self, principal: Principal) -> bool:
        """Return whether the credential that a caller has shown is taken still, whatever its rights are now.

        True of one that has shown none. Of a provider's token also its key and its claims are looked at again.
        """
        if principal.credential is None:
            return True
        self._look()
        found = self._index.by_id.get(principal.credential)
        if found is None:
            return self.tokens.has(principal)
        if principal.evidence is not None and not self._holds(principal.evidence):
            return False
        is_past = principal.expires_ms is not None and principal.expires_ms <= self._broker.clock.now_ms()
        return not is_past and not self._is_over(found.credential)

    def is_known(self, principal: Principal) -> bool:
        """Return whether a caller that was known is known still, with the rights that it had.

        If its rights have only grown, it has the new ones from now on.
        """
        if principal is OWNER:
            return True
        if principal.credential is None:
            return not self.asks
        if not self.has_credential(principal):
            return False
        owned = self._index.by_id.get(principal.credential)
        if owned is None:
            return True  # an access token, whose rights do not change
        now = self._principal(owned)
        if (now.name, now.account) != (principal.name, principal.account):
            return False
        if not principal.rights.are_within(now.rights):
            return False
        principal.rights = now.rights
        return True

    def _check_expiry(self, credential: Credential) -> None:
        if self._is_over(credential):
            raise UnauthenticatedError(
                f"the credential {credential.id} expired at {credential.expires_ms}",
                LoginRefusal("expired", credential.id),
            )

    def _is_over(self, credential: Credential) -> bool:
        return credential.expires_ms is not None and credential.expires_ms <= self._broker.clock.now_ms()

    def _look(self) -> None:
        identities = self._broker.identities
        if identities is self._seen:
            return
        self._seen, self._index = identities, CredentialIndex(identities)
        self._former = {
            id_: each for id_, each in {**self._former, **self._principals}.items() if id_ in self._index.by_id
        }
        self._principals = {}

    def _principal(self, owned: Owned) -> Principal:
        """Return the caller of a credential, the same one as before as long as name and rights are."""
        identity, credential = owned
        known = self._principals.get(credential.id)
        if known is None:
            known = self._principals[credential.id] = self._made(identity, credential.id)
        return known

    def _made(self, identity: Identity, credential: str) -> Principal:
        rights, account = Rights.of(identity.grants), self._broker.accounts.of(identity.name)
        now = identity.name, account, rights.grants
        former = self._former.pop(credential, None)
        if former is not None and (former.name, former.account, former.rights.grants) == now:
            return former
        return Principal(identity.name, rights, credential, account, self._broker.refusals, self._front or None)


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return (", ".join(f"{name!r:.300}" for name in names[:_NAMED_MAX]) or "nothing") + more
