"""``tarry identity``, ``tarry whoami`` and ``tarry can``: known callers, and their rights."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.base.errors import NotFoundError
from tarry.cli import credentials, identity_creation, output
from tarry.cli.credentials import Name, allowed, plain_identity, quotas_in_short
from tarry.cli.exits import ExitCode
from tarry.cli.identity_creation import All, Grants, Quotas, grants_of, limits_of
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, connect

if TYPE_CHECKING:
    from tarry.client import Client

app = typer.Typer(
    name="identity", help="Who may do what: identities, their rights and credentials.", no_args_is_help=True
)

_LINES_MAX = 1000
"""Lines of the audit log that are looked at; the newest."""

app.command("create")(identity_creation.create)


@app.command("set")
def set_(
    name: Name,
    grants: Grants = None,
    all_: All = False,
    quotas: Quotas = None,
    description: Annotated[str | None, typer.Option("--description", "-d", help="For people.")] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Give an identity these rights in the place of those that it has; it is made if it is new.

    Connections of it that stand end if a right is taken away, and come again with the new ones. The same of quotas,
    which end none.

    \b
    tarry identity set billing -g 'produce orders.*' -g 'deny produce orders.cards'
    tarry identity set billing -q messages_per_second=2000 -q pending=5000000
    tarry identity set billing -q messages_per_second=0
    """
    wanted, limits = grants_of(grants, all_), limits_of(quotas)
    with connect(endpoint) as client:
        found = client.set_identity(name, wanted or None, description=description, quotas=limits)
    output.result(plain_identity(found), allowed(found.name, found.grants, found.quotas), json=json)


@app.command("list")
def list_(endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """List identities with their rights, quotas and credentials, and never with secrets.

    \b
    tarry identity list
    """
    with connect(endpoint) as client:
        found = client.list_identities()
    if json:
        for identity in found:
            output.json_line(plain_identity(identity))
        return
    rows = [
        (
            *(each.name, "; ".join(each.grants), quotas_in_short(each.quotas)),
            *(", ".join(map(credentials.in_short, each.credentials)), each.description),
        )
        for each in found
    ]
    output.table(("NAME", "RIGHTS", "QUOTAS", "CREDENTIALS", "DESCRIPTION"), rows)


@app.command("quotas")
def quotas_(
    identity: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The identity's name; without it: all that have quotas.")
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Show the quotas of identities, with what is used of them, and what was refused.

    \b
    tarry identity quotas
    tarry identity quotas billing
    """
    with connect(endpoint) as client:
        found = client.get_quota_use(identity)
    if json:
        for each in found:
            output.json_line(asdict(each))
        return
    rows = [
        (
            each.identity,
            name,
            f"{limit:,}",
            f"{each.used[name]:,}" if name in each.used else "",
            each.refused.get(name, 0),
        )
        for each in found
        for name, limit in each.quotas.items()
    ]
    output.table(("IDENTITY", "QUOTA", "LIMIT", "USED", "REFUSED"), rows)


@app.command()
def delete(name: Name, endpoint: Endpoint = DEFAULT_ENDPOINT) -> None:
    """Forget an identity: its tokens are refused from now on, and its connections end.

    Push subscriptions that it has set stay. They are named, as far as the audit log knows of them.

    \b
    tarry identity delete billing
    """
    with connect(endpoint) as client:
        client.delete_identity(name)
        left = _left_by(client, name)
    if left:
        output.note(f"push subscriptions that {name} has set stay: {', '.join(left)} (tarry push show, remove)")


def _left_by(client: Client, name: str) -> list[str]:
    """Return the push subscriptions that are there and that an identity has made or changed."""
    try:
        lines = client.audit_log(who=name, operation="set-push", outcome="done", limit=_LINES_MAX)
    except NotFoundError:  # a broker without an audit log
        return []
    names = {each.details.get("name") for each in lines}
    return [each.name for each in client.push_subscriptions() if each.name in names]


def whoami(endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """Show who the broker takes this user for, and what that identity may do.

    \b
    tarry whoami
    """
    with connect(endpoint) as client:
        found = client.whoami()
    output.result(asdict(found), allowed(found.identity, found.grants, found.quotas), json=json)


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


app.command("show")(credentials.show)
app.command("token")(credentials.token)
app.command("access-key")(credentials.access_key)
app.command("add-certificate")(credentials.add_certificate)
app.command("add-jwt")(credentials.add_jwt)
app.command("revoke")(credentials.revoke)
