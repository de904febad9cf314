"""``tarry identity create``: an identity, its rights and a token, also before a broker's first start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.base.endpoint import parse_address
from tarry.base.errors import InvalidArgumentError
from tarry.cli import output
from tarry.cli.credentials import Description, Expires, Name, allowed, plain_identity
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, connect, expiry_ms

if TYPE_CHECKING:
    from tarry.api.identities import IssuedCredential
    from tarry.api.operation import Operation
    from tarry.api.operations import SetIdentity
    from tarry.client import Client

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

    The identity "anonymous" is whoever shows no credential, so it has no token.

    \b
    tarry identity create admin --all
    tarry identity create anonymous -g 'produce orders.*'
    tarry identity create billing -g 'produce orders.*' -g 'consume orders.* group:billing'
    tarry identity create shop -g 'produce shop.*' -q messages_per_second=2000 -q bytes_per_second=8MiB
    """
    from tarry.api.identities import ANONYMOUS
    from tarry.api.operations import SetIdentity

    identity = SetIdentity(name, grants_of(grant, all_), description=description, quotas=limits_of(quotas))
    if name == ANONYMOUS:
        _create_anonymous(identity, data, endpoint, has_expiry=expires is not None, json=json)
        return
    expires_ms = None if expires is None else expiry_ms(expires, "--expires")
    kept_for: str | None = endpoint
    if data is not None:
        given = context.get_parameter_source("endpoint")
        if all_ and keep and (given is None or given.name == "DEFAULT"):
            kept_for = _address_of(data)
        issued = _create_in(data, identity, expires_ms)
    else:
        with connect(endpoint) as client:
            _check_new(client, name)
            client.call(identity)
            try:
                issued = client.add_credential(name, expires_ms=expires_ms)
            except InvalidArgumentError:
                client.delete_identity(name)
                raise
    output.result(asdict(issued), issued.secret, json=json)
    if all_ and keep:
        _keep(kept_for, issued.secret)


def _create_anonymous(identity: SetIdentity, data: Path | None, endpoint: str, *, has_expiry: bool, json: bool) -> None:
    """Make the identity of whoever shows no credential: it has no token that could be printed, or expire."""
    if has_expiry:
        raise InvalidArgumentError(f"--expires is given, and {identity.name} has no token; allowed: without it")
    if data is not None:
        with _opened(data) as carry_out:
            made = carry_out(identity)
    else:
        with connect(endpoint) as client:
            _check_new(client, identity.name)
            made = client.call(identity)
    output.result(plain_identity(made), allowed(made.name, made.grants, made.quotas), json=json)


def _check_new(client: Client, name: str) -> None:
    if any(each.name == name for each in client.list_identities()):
        raise InvalidArgumentError(
            f"there is an identity {name!r}; allowed: a new name, or tarry identity set, tarry identity token"
        )


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


def grants_of(grants: list[str] | None, all_: bool) -> list[str]:
    """Return the lines of rights of the options ``--grant`` and ``--all``.

    Raises:
        InvalidArgumentError: both are given.
    """
    if all_ and grants:
        raise InvalidArgumentError("--all and --grant are both given; allowed: one of them")
    return ["admin"] if all_ else grants or []


def limits_of(quotas: list[str] | None) -> dict[str, int] | None:
    """Return limits by name; None: none is given. One of 0 is none, so a single one of these removes all."""
    from tarry.base.setting_types import parse_size

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
    """Make an identity and a token in the directory of a stopped broker; raises as :func:`_opened`."""
    from tarry.api.operations import AddCredential

    with _opened(data) as carry_out:
        carry_out(identity)
        issued: IssuedCredential = carry_out(AddCredential(identity.name, expires_ms=expires_ms))
    return issued


@contextmanager
def _opened(data: Path) -> Iterator[Callable[[Operation[Any]], Any]]:
    """Have changes of identities carried out in the directory of a broker that is stopped.

    Raises:
        LockedError: a broker has it open.
    """
    from tarry.api.audit import AskedBy
    from tarry.api.operations import SetIdentity
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
        by = AskedBy("local", front="command")
        audit = AuditWriter.open(
            *(Config(data=data), SystemClock(), engine.log(LogKind.AUDIT), OsFiles(), Health(), Damage().report),
            threaded=False,
            wanted=True,
            by=by,
        )

        def carry_out(operation: Operation[Any]) -> Any:
            do: Any = identities.set if isinstance(operation, SetIdentity) else identities.add_credential
            return audit.carry_out(operation, by, partial(do, operation))

        try:
            yield carry_out
        finally:
            audit.close()
            identities.close()
    finally:
        engine.release()
