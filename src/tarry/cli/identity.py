"""``tarry identity``, ``tarry whoami`` and ``tarry can``: known callers, and their rights."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.base.errors import InvalidArgumentError
from tarry.cli import output
from tarry.cli.exits import ExitCode
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, connect, instant_ms

if TYPE_CHECKING:
    from tarry.api.identities import Identity, IssuedCredential

app = typer.Typer(name="identity", help="Who may do what: identities, their rights and tokens.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The identity's name.")]
Grants = Annotated[
    list[str] | None,
    typer.Option("--grant", "-g", metavar="GRANT", help="A right, as 'produce orders.*'; repeatable."),
]
All = Annotated[bool, typer.Option("--all", help="Everything: the right admin.")]
Description = Annotated[str, typer.Option("--description", "-d", help="For people.")]
Expires = Annotated[str | None, typer.Option("--expires", help="The token is refused from then on: an instant.")]


@app.command()
def create(
    name: Name,
    grant: Grants = None,
    all_: All = False,
    description: Description = "",
    expires: Expires = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Of a broker that is stopped: its data directory.")
    ] = None,
    keep: Annotated[bool, typer.Option(help="Keep the token in this user's credentials.toml, with --all.")] = True,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Make an identity and a token for it. The token is printed now and never again.

    With the first one, every port asks who callers are. It has to have the right admin (--all).

    \b
    tarry identity create admin --all
    tarry identity create billing -g 'produce orders.*' -g 'consume orders.* group:billing'
    """
    grants = _grants(grant, all_)
    expires_ms = None if expires is None else instant_ms(expires, "--expires")
    if data is not None:
        issued = _create_in(data, name, grants, description, expires_ms)
    else:
        with connect(endpoint) as client:
            if any(each.name == name for each in client.list_identities()):
                raise InvalidArgumentError(
                    f"there is an identity {name!r}; allowed: a new name, or tarry identity set, tarry identity token"
                )
            client.set_identity(name, grants, description=description)
            try:
                issued = client.add_credential(name, expires_ms=expires_ms)
            except InvalidArgumentError:
                client.delete_identity(name)
                raise
    output.result(asdict(issued), issued.secret, json=json)
    if all_ and keep:
        from tarry.link.credentials import keep_token

        output.note(f"kept for {endpoint} in {keep_token(endpoint, issued.secret)}")


def _grants(grants: list[str] | None, all_: bool) -> list[str]:
    if all_ and grants:
        raise InvalidArgumentError("--all and --grant are both given; allowed: one of them")
    return ["admin"] if all_ else grants or []


def _create_in(data: Path, name: str, grants: list[str], description: str, expires_ms: int | None) -> IssuedCredential:
    """Make an identity in the directory of a broker that is stopped.

    Raises:
        LockedError: a broker has it open.
    """
    from tarry.api.audit import AskedBy
    from tarry.api.operations import AddCredential, SetIdentity
    from tarry.base.clock import SystemClock
    from tarry.base.config import Config
    from tarry.broker.audit import AuditWriter
    from tarry.broker.damage import Damage
    from tarry.broker.directory import DirectoryLock
    from tarry.broker.health import Health
    from tarry.broker.identities import Identities
    from tarry.log.files import OsFiles

    lock = DirectoryLock(data)
    try:
        identities = Identities(OsFiles(), SystemClock(), data)
        audit = AuditWriter.open(
            *(Config(data=data), SystemClock(), OsFiles(), Health(), Damage().report), threaded=False, wanted=True
        )
        by, setting = AskedBy("local", front="command"), SetIdentity(name, grants, description=description)
        adding = AddCredential(name, expires_ms=expires_ms)
        try:
            audit.carry_out(setting, by, partial(identities.set, setting))
            return audit.carry_out(adding, by, partial(identities.add_credential, adding))
        finally:
            audit.close()
            identities.close()
    finally:
        lock.release()


@app.command("set")
def set_(
    name: Name,
    grants: Grants = None,
    all_: All = False,
    description: Annotated[str | None, typer.Option("--description", "-d", help="For people.")] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Give an identity these rights in the place of those that it has; it is made if it is new.

    Connections of it that stand end, and come again with the new rights.

    \b
    tarry identity set billing -g 'produce orders.*' -g 'deny produce orders.cards'
    """
    wanted = _grants(grants, all_)
    with connect(endpoint) as client:
        found = client.set_identity(name, wanted or None, description=description)
    output.result(_plain(found), f"{found.name}: {'; '.join(found.grants) or 'no rights'}", json=json)


@app.command("list")
def list_(endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """List identities with their rights and tokens; the broker does not know the secrets.

    \b
    tarry identity list
    """
    with connect(endpoint) as client:
        found = client.list_identities()
    if json:
        for identity in found:
            output.json_line(_plain(identity))
        return
    rows = [(each.name, "; ".join(each.grants), _tokens(each), each.description) for each in found]
    output.table(("NAME", "RIGHTS", "TOKENS", "DESCRIPTION"), rows)


@app.command()
def delete(name: Name, endpoint: Endpoint = DEFAULT_ENDPOINT) -> None:
    """Forget an identity: its tokens are refused from now on, and its connections end.

    \b
    tarry identity delete billing
    """
    with connect(endpoint) as client:
        client.delete_identity(name)


@app.command()
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
    until_ms = None if expires_ms is None else instant_ms(expires_ms, "--expires")
    with connect(endpoint) as client:
        issued = client.add_credential(identity, description=description, expires_ms=until_ms)
    output.result(asdict(issued), issued.secret, json=json)


@app.command("access-key")
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
    """Make an access key for an identity, with which RocketMQ's clients sign.

    Its secret is printed now and never again.

    \b
    tarry identity access-key billing
    tarry identity access-key billing --access-key OLD_KEY --secret - < secret.txt
    """
    if secret not in (None, "-"):
        raise InvalidArgumentError("--secret is no '-'; allowed: '-', since others can read what is in a command line")
    own = None if secret is None else typer.get_text_stream("stdin").read().strip()
    until_ms = None if expires_ms is None else instant_ms(expires_ms, "--expires")
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


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="The token's id, as it is listed.")],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Refuse a token from now on; connections that it opened end.

    \b
    tarry identity revoke 3f29c0d1a4b7
    """
    with connect(endpoint) as client:
        client.remove_credential(id)


def whoami(endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """Show who the broker takes this user for, and what that identity may do.

    \b
    tarry whoami
    """
    with connect(endpoint) as client:
        found = client.whoami()
    shown = f"{found.identity}: {'; '.join(found.grants) or 'no rights'}"
    output.result(asdict(found), shown, json=json)


def can(
    right: Annotated[str, typer.Argument(help="produce, consume, look, browse, manage, admin, pipeline, bulk, front.")],
    topic: Annotated[str | None, typer.Argument(help="On this topic; without it: on all.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="With this group.")] = None,
    identity: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Another identity than one's own.")
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Tell whether an identity may do something; the exit code is 8 if not.

    \b
    tarry can produce orders
    tarry can consume orders --group billing --as billing
    """
    with connect(endpoint) as client:
        found = client.check_access(right, topic, group=group, identity=identity)
    output.result(asdict(found), f"{found.identity}: {'yes' if found.allowed else 'no'}", json=json)
    if not found.allowed:
        raise typer.Exit(ExitCode.NOT_DONE)


def _tokens(identity: Identity) -> str:
    return ", ".join(
        (each.id if each.access_key is None else f"{each.id} ({each.access_key})")
        + ("" if each.expires_ms is None else f" until {output.instant(each.expires_ms)}")
        for each in identity.credentials
    )


def _plain(identity: Identity) -> dict[str, object]:
    # The hashes are for the broker; what people write to a terminal or a log need not have them.
    plain = asdict(identity)
    for credential in plain["credentials"]:
        del credential["digest"]
    return plain
