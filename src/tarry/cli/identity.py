"""``tarry identity``, ``tarry whoami`` and ``tarry can``: known callers, and their rights."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.base.endpoint import parse_address
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.base.setting_types import parse_size
from tarry.cli import credentials, output
from tarry.cli.credentials import Description, Expires, Name, plain_identity
from tarry.cli.exits import ExitCode
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, connect, expiry_ms

if TYPE_CHECKING:
    from tarry.api.identities import IssuedCredential
    from tarry.api.operations import SetIdentity
    from tarry.client import Client

app = typer.Typer(
    name="identity", help="Who may do what: identities, their rights and credentials.", no_args_is_help=True
)

_LINES_MAX = 1000
"""Lines of the audit log that are looked at; the newest."""

Grants = Annotated[
    list[str] | None,
    typer.Option("--grant", "-g", metavar="GRANT", help="A right, as 'produce orders.*'; repeatable."),
]
All = Annotated[bool, typer.Option("--all", help="Everything: the right admin.")]
Quotas = Annotated[
    list[str] | None,
    typer.Option(
        "--quota",
        "-q",
        metavar="NAME=LIMIT",
        help="A limit, as 'messages_per_second=2000'; repeatable; see identity.md.",
    ),
]


@app.command()
def create(
    name: Name,
    grant: Grants = None,
    all_: All = False,
    quotas: Quotas = None,
    description: Description = "",
    expires: Expires = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Of a broker that is stopped: its data directory.")
    ] = None,
    keep: Annotated[bool, typer.Option(help="Keep the token in this user's credentials.toml, with --all.")] = True,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
    context: typer.Context = None,  # type: ignore[assignment]
) -> None:
    """Make an identity and a token for it. The token is printed now and never again.

    With the first one, every port asks who callers are. It has to have the right admin (--all).

    \b
    tarry identity create admin --all
    tarry identity create billing -g 'produce orders.*' -g 'consume orders.* group:billing'
    tarry identity create shop -g 'produce shop.*' -q messages_per_second=2000 -q bytes_per_second=8MiB
    """
    grants, limits = _grants(grant, all_), _limits(quotas)
    expires_ms = None if expires is None else expiry_ms(expires, "--expires")
    kept_for: str | None = endpoint
    if data is not None:
        given = context.get_parameter_source("endpoint")
        if all_ and keep and (given is None or given.name == "DEFAULT"):
            kept_for = _address_of(data)
        from tarry.api.operations import SetIdentity

        issued = _create_in(data, SetIdentity(name, grants, description=description, quotas=limits), expires_ms)
    else:
        with connect(endpoint) as client:
            if any(each.name == name for each in client.list_identities()):
                raise InvalidArgumentError(
                    f"there is an identity {name!r}; allowed: a new name, or tarry identity set, tarry identity token"
                )
            client.set_identity(name, grants, description=description, quotas=limits)
            try:
                issued = client.add_credential(name, expires_ms=expires_ms)
            except InvalidArgumentError:
                client.delete_identity(name)
                raise
    output.result(asdict(issued), issued.secret, json=json)
    if all_ and keep:
        _keep(kept_for, issued.secret)


def _address_of(data: Path) -> str | None:
    """Return the address of the native port, by the settings of a stopped broker; None: it has none.

    Raises:
        InvalidArgumentError: a setting is not allowed.
    """
    from tarry.base.config import load
    from tarry.cli.server import reachable
    from tarry.fronts.flight.settings import FlightSettings
    from tarry.fronts.registry import ServerConfig

    address = FlightSettings.of(load(flags={"data": data}, model=ServerConfig).config).flight
    return reachable(address) if address and parse_address(address)[1] else None


def _keep(endpoint: str | None, token: str) -> None:
    """Keep an administrator's token for this user, if there is none for that broker yet."""
    from tarry.link.credentials import credentials_path, keep_token, keeps_token

    if endpoint is None:
        output.note("the settings name no port of flight, so the token was not kept; allowed: --endpoint, or keep it")
    elif keeps_token(endpoint):
        output.note(f"{credentials_path()} has a token for {endpoint} already, which stays; keep this one yourself")
    else:
        output.note(f"kept for {endpoint} in {keep_token(endpoint, token)}")


def _grants(grants: list[str] | None, all_: bool) -> list[str]:
    if all_ and grants:
        raise InvalidArgumentError("--all and --grant are both given; allowed: one of them")
    return ["admin"] if all_ else grants or []


def _limits(quotas: list[str] | None) -> dict[str, int] | None:
    """Return limits by name; None: none is given. One of 0 is none, so a single one of these removes all."""
    if not quotas:
        return None
    limits = {}
    for text in quotas:
        name, equals, value = text.partition("=")
        try:
            limits[name.strip()] = parse_size(value if equals else "")
        except ValueError:
            raise InvalidArgumentError(
                f"--quota is {text!r:.80}; allowed: NAME=LIMIT, a whole number, or as 8MiB"
            ) from None
    return {name: limit for name, limit in limits.items() if limit}


def _create_in(data: Path, identity: SetIdentity, expires_ms: int | None) -> IssuedCredential:
    """Make an identity in the directory of a broker that is stopped.

    Raises:
        LockedError: a broker has it open.
    """
    from tarry.api.audit import AskedBy
    from tarry.api.operations import AddCredential
    from tarry.base.clock import SystemClock
    from tarry.base.config import Config
    from tarry.broker.audit import AuditWriter
    from tarry.broker.damage import Damage
    from tarry.broker.health import Health
    from tarry.broker.identities import Identities
    from tarry.log.file_engine import FileEngine
    from tarry.log.files import OsFiles
    from tarry.log.frame import LogKind

    engine = FileEngine(OsFiles(), data)
    engine.claim()
    try:
        identities = Identities(OsFiles(), SystemClock(), data)
        audit = AuditWriter.open(
            *(Config(data=data), SystemClock(), engine.log(LogKind.AUDIT), OsFiles(), Health(), Damage().report),
            threaded=False,
            wanted=True,
        )
        by, adding = AskedBy("local", front="command"), AddCredential(identity.name, expires_ms=expires_ms)
        try:
            audit.carry_out(identity, by, partial(identities.set, identity))
            return audit.carry_out(adding, by, partial(identities.add_credential, adding))
        finally:
            audit.close()
            identities.close()
    finally:
        engine.release()


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
    wanted, limits = _grants(grants, all_), _limits(quotas)
    with connect(endpoint) as client:
        found = client.set_identity(name, wanted or None, description=description, quotas=limits)
    output.result(plain_identity(found), f"{found.name}: {'; '.join(found.grants) or 'no rights'}", json=json)


@app.command("list")
def list_(endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """List identities with their rights and credentials, and never with secrets.

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
        (each.name, "; ".join(each.grants), ", ".join(map(credentials.in_short, each.credentials)), each.description)
        for each in found
    ]
    output.table(("NAME", "RIGHTS", "CREDENTIALS", "DESCRIPTION"), rows)


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


app.command("show")(credentials.show)
app.command("token")(credentials.token)
app.command("access-key")(credentials.access_key)
app.command("add-certificate")(credentials.add_certificate)
app.command("add-jwt")(credentials.add_jwt)
app.command("revoke")(credentials.revoke)
