"""Identities: made, given rights and credentials, listed, deleted; and what a caller itself may do.

Changes are durable on return.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Any, get_args

from tarry.api.identities import AccessDecision, Credential, CredentialKind, Identity, IssuedCredential, WhoIs
from tarry.api.needs import OF_THE_BROKER, Nothing, OnBroker, Right
from tarry.api.operation import NOTHING, Action, Codec, Natural, Operation, data, known, many
from tarry.api.quotas import QuotaUse
from tarry.base.errors import InvalidArgumentError


def _identity(answer: Any) -> Identity:
    return known(Identity, answer, credentials=[known(Credential, each) for each in answer["credentials"]])


KINDS: tuple[str, ...] = get_args(CredentialKind)
IDENTITY: Codec[Identity] = Codec(asdict, _identity, shape=Identity)


@dataclass(frozen=True, slots=True)
class SetIdentity(Operation[Identity]):
    """Make an identity, or change one (None: as it is). A new one without grants may do nothing.

    The first one has every port ask who callers are. It must be able to make others: it needs the grant "admin".

    Raises:
        InvalidArgumentError: a value is not allowed, or nobody would be left who may change identities.
        DiskFullError: nothing was changed.
    """

    wire = Action("set-identity", "an identity and its rights, made if it is new", IDENTITY)
    needs = OnBroker(Right.ADMIN)
    name: str
    grants: list[str] | None = None
    """Lines of rights, in the place of all that it has; see ``docs/identity.md``."""
    _: KW_ONLY
    description: str | None = None
    quotas: dict[str, int] | None = None
    """Limits by name, in the place of all that it has; see :mod:`tarry.api.quotas`."""


@dataclass(frozen=True, slots=True)
class ListIdentities(Operation[list[Identity]]):
    """List all identities by name, with their rights and credentials; never with secrets or digests."""

    wire = Action("identities", "who may be known, and their rights", many(IDENTITY))
    needs = OnBroker(Right.ADMIN)


@dataclass(frozen=True, slots=True)
class DeleteIdentity(Operation[None]):
    """Forget an identity: its credentials are refused from then on, and its connections end.

    Raises:
        NotFoundError: there is none of that name. InvalidArgumentError: nobody would be left who may change the others.
        DiskFullError: nothing was changed.
    """

    wire = Action("delete-identity", "forget an identity and its credentials", NOTHING)
    needs = OnBroker(Right.ADMIN)
    name: str


@dataclass(frozen=True, slots=True)
class AddCredential(Operation[IssuedCredential]):
    """Make a token or an access key for an identity, or have it known by a name in its certificate.

    A secret is in the result, and in no other answer.

    An identity may have several, so that one can be replaced by another without a gap.

    Args:
        expires_ms: it is refused from this instant on; None: never.
        kind: "token"; "access_key", with which clients of RocketMQ sign; "certificate", of a client by TLS;
            or "jwt", a JSON Web Token of a provider in the broker's settings.
        access_key: the name of the access key; None: one is made.
        secret: the access key's own, from elsewhere; None: one is made.
        san: the name in the certificate: ``spiffe://example/billing``, ``billing.example``, ``CN:billing``.
        claim: what tokens of a provider have, as ``groups=tarry-billing``.
        issuer: that provider, by its name in the settings or as its tokens name it (``iss``); None: the only one.

    Raises:
        NotFoundError: there is no such identity. InvalidArgumentError: a value is not allowed.
        DiskFullError: nothing was made.
    """

    wire = Action("add-credential", "a token, an access key, a certificate's name or a claim", data(IssuedCredential))
    needs = OnBroker(Right.ADMIN)
    identity: str
    _: KW_ONLY
    description: str = ""
    expires_ms: Natural | None = None
    kind: CredentialKind = "token"
    access_key: str | None = None
    secret: str | None = field(default=None, repr=False)
    san: str | None = None
    claim: str | None = None
    issuer: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidArgumentError(f"kind is {self.kind!r:.80}; allowed: {', '.join(KINDS)}")
        if self.kind != "access_key" and (self.access_key is not None or self.secret is not None):
            raise InvalidArgumentError(
                f"access_key and secret are for the kind access_key; allowed for a {self.kind}: neither"
            )
        if (self.kind == "certificate") != (self.san is not None):
            raise InvalidArgumentError("san is for the kind certificate, which needs it; allowed: both, or neither")
        if (self.kind == "jwt") != (self.claim is not None):
            raise InvalidArgumentError("claim is for the kind jwt, which needs it; allowed: both, or neither")
        if self.kind != "jwt" and self.issuer is not None:
            raise InvalidArgumentError(f"issuer is for the kind jwt; allowed for a {self.kind}: none")


@dataclass(frozen=True, slots=True)
class RemoveCredential(Operation[None]):
    """Refuse a credential, by its ``id``, from now on; connections that it opened end within a second.

    Raises:
        NotFoundError: there is no such credential. DiskFullError: it is there still.
    """

    wire = Action("remove-credential", "refuse a credential from now on", NOTHING)
    needs = OnBroker(Right.ADMIN)
    id: str


@dataclass(frozen=True, slots=True)
class GetQuotaUse(Operation[list[QuotaUse]]):
    """Return what identities use of their quotas, one of them or all.

    Raises:
        NotFoundError: there is none of that name.
    """

    wire = Action("quota-use", "quotas of identities, and what is used of them", many(data(QuotaUse)))
    needs = OnBroker(Right.ADMIN)
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class WhoAmI(Operation[WhoIs]):
    """The caller's identity, and its rights."""

    wire = Action("whoami", "who the caller is, with its rights", data(WhoIs))
    needs = Nothing()


@dataclass(frozen=True, slots=True)
class CheckAccess(Operation[AccessDecision]):
    """Return whether an identity has a right: the caller, or (for the right admin) another.

    Args:
        right: one of :class:`tarry.api.needs.Right`.
        topic: the right is on this topic; None: on all topics.
        group: and on this group.

    Raises:
        NotFoundError: there is no such identity. InvalidArgumentError: there is no such right.
    """

    wire = Action("check-access", "whether an identity may do something", data(AccessDecision))
    needs = Nothing()
    right: str
    topic: str | None = None
    _: KW_ONLY
    group: str | None = None
    identity: str | None = None

    def __post_init__(self) -> None:
        if self.right not in tuple(Right):
            raise InvalidArgumentError(f"right is {self.right!r:.80}; allowed: {', '.join(Right)}")
        if self.right in OF_THE_BROKER and (self.topic is not None or self.group is not None):
            raise InvalidArgumentError(f"{self.right} is a right on the broker; allowed with it: no topic, no group")
