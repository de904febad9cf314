"""Commands of ``tarry identity`` for credentials: made, shown, refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.cli import output
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, connect, expiry_ms

if TYPE_CHECKING:
    from tarry.api.identities import Credential, Identity

Name = Annotated[str, typer.Argument(metavar="NAME", help="The identity's name.")]
Description = Annotated[str, typer.Option("--description", "-d", help="For people.")]
Expires = Annotated[
    str | None, typer.Option("--expires", help="It is refused from then on: an instant, or a duration, as 30d.")
]


def token(
    identity: Name,
    description: Description = "",
    expires_ms: Expires = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Make one more token for an identity. It is printed now and never again.

    \b
    tarry identity token billing --expires 2027-06-01T00:00:00Z
    """
    until_ms = None if expires_ms is None else expiry_ms(expires_ms, "--expires")
    with connect(endpoint) as client:
        issued = client.add_credential(identity, description=description, expires_ms=until_ms)
    output.result(asdict(issued), issued.secret, json=json)


def access_key(
    identity: Name,
    access_key: Annotated[
        str | None, typer.Option("--access-key", metavar="KEY", help="Its name; without it, one is made.")
    ] = None,
    secret: Annotated[
        str | None, typer.Option("--secret", metavar="-", help="'-': its secret is read from standard input.")
    ] = None,
    description: Description = "",
    expires_ms: Expires = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Make an access key for an identity, with which RocketMQ's clients and AWS's SDKs sign.

    Its secret is printed now and never again.

    \b
    tarry identity access-key billing
    tarry identity access-key billing --access-key OLD_KEY --secret - < secret.txt
    """
    if secret not in (None, "-"):
        raise InvalidArgumentError("--secret is no '-'; allowed: '-', since others can read what is in a command line")
    own = None if secret is None else typer.get_text_stream("stdin").read().strip()
    until_ms = None if expires_ms is None else expiry_ms(expires_ms, "--expires")
    with connect(endpoint) as client:
        issued = client.add_credential(
            identity,
            description=description,
            expires_ms=until_ms,
            kind="access_key",
            access_key=access_key,
            secret=own,
        )
    output.result(asdict(issued), f"{issued.access_key} {issued.secret}", json=json)


def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="The credential's id, as it is listed.")],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Refuse a credential from now on; connections that it opened end.

    \b
    tarry identity revoke 3f29c0d1a4b7
    """
    with connect(endpoint) as client:
        client.remove_credential(id)


def add_certificate(
    identity: Name,
    san: Annotated[
        str, typer.Option("--san", metavar="NAME", help="As spiffe://example/billing, billing.example or CN:billing.")
    ],
    description: Description = "",
    expires_ms: Expires = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Have an identity known by a name in its client certificate.

    An authority of tls_client_ca has to have signed the certificate.

    \b
    tarry identity add-certificate billing --san spiffe://example/billing
    tarry identity add-certificate billing --san billing.example
    """
    until_ms = None if expires_ms is None else expiry_ms(expires_ms, "--expires")
    with connect(endpoint) as client:
        made = client.add_credential(
            identity, kind="certificate", san=san, description=description, expires_ms=until_ms
        )
    plain = {"id": made.id, "identity": made.identity, "san": made.san, "expires_ms": made.expires_ms}
    output.result(plain, f"{made.id}: {made.san}", json=json)


def add_jwt(
    identity: Name,
    claim: Annotated[str, typer.Option("--claim", metavar="NAME=VALUE", help="As groups=tarry-billing or sub=42.")],
    issuer: Annotated[
        str | None, typer.Option("--issuer", metavar="NAME", help="The provider, by name or iss; needed with several.")
    ] = None,
    description: Description = "",
    expires_ms: Expires = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Have an identity known by a claim in JSON Web Tokens of a provider in the broker's settings.

    \b
    tarry identity add-jwt billing --claim groups=tarry-billing
    tarry identity add-jwt clerk --claim sub=42 --issuer keycloak
    """
    until_ms = None if expires_ms is None else expiry_ms(expires_ms, "--expires")
    with connect(endpoint) as client:
        made = client.add_credential(
            identity, kind="jwt", claim=claim, issuer=issuer, description=description, expires_ms=until_ms
        )
    plain = {"id": made.id, "identity": made.identity, "issuer": made.issuer, "claim": made.claim}
    output.result({**plain, "expires_ms": made.expires_ms}, f"{made.id}: {made.claim} of {made.issuer}", json=json)


def show(name: Name, endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """Show an identity: its rights, its quotas, and its credentials.

    \b
    tarry identity show billing
    """
    with connect(endpoint) as client:
        found = next((each for each in client.list_identities() if each.name == name), None)
    if found is None:
        raise NotFoundError(f"there is no identity {name!r:.300}; allowed: the name of one that is listed")
    if json:
        output.json_line(plain_identity(found))
        return
    output.note(allowed(found.name, found.grants, found.quotas))
    output.table(
        ("ID", "KIND", "NAME", "CREATED", "LAST USED", "EXPIRES", "DESCRIPTION"), [_row(c) for c in found.credentials]
    )


def plain_identity(identity: Identity) -> dict[str, Any]:
    """Return an identity for a terminal or a log, which need not have the digests."""
    plain = asdict(identity)
    for credential in plain["credentials"]:
        del credential["digest"]
    return plain


def allowed(name: str, grants: Sequence[str], quotas: Mapping[str, int]) -> str:
    """Return a line about an identity: its rights, and its quotas if it has some."""
    rights = f"{name}: {'; '.join(grants) or 'no rights'}"
    return f"{rights}; quotas: {quotas_in_short(quotas)}" if quotas else rights


def quotas_in_short(quotas: Mapping[str, int]) -> str:
    """Return quotas as they are given to ``-q``."""
    return ", ".join(f"{name}={limit}" for name, limit in quotas.items())


def in_short(credential: Credential) -> str:
    """Return what a list says of a credential."""
    name = _name_of(credential)
    used = f" used {credential.last_used}" if credential.last_used else ""
    until = "" if credential.expires_ms is None else f" until {output.instant(credential.expires_ms)}"
    return credential.id + (f" ({name})" if name else "") + used + until


def _name_of(credential: Credential) -> str:
    if credential.claim is not None:
        return f"{credential.claim} of {credential.issuer}"
    return credential.access_key or credential.san or ""


def _row(credential: Credential) -> tuple[str | None, ...]:
    expires = "" if credential.expires_ms is None else output.instant(credential.expires_ms)
    return (
        credential.id,
        credential.kind,
        _name_of(credential),
        output.instant(credential.created_ms),
        credential.last_used,
        expires,
        credential.description,
    )
