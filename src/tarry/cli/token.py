"""``tarry token``: access tokens of the HTTP front."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.cli import output
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, connect, duration_ms

if TYPE_CHECKING:
    from tarry.api.access import AccessToken

app = typer.Typer(name="token", help="Access tokens of the HTTP front.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The token's id, as it is listed.")]


@app.command()
def create(
    namespace: Annotated[str, typer.Argument(help="What it is for: a namespace, or * for everything.")] = "*",
    description: Annotated[str, typer.Option("--description", "-d", help="For people.")] = "",
    secret: Annotated[
        str | None,
        typer.Option("--secret", metavar="-", help="Read a secret of your own (20 to 255 characters) from stdin."),
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Make a token. Its secret is printed now and never again.

    \b
    tarry token create orders --description 'billing service'
    tarry token create '*' -d console
    """
    own = None if secret is None else _secret(secret)
    with connect(endpoint) as client:
        created = client.create_token(namespace, description, own)
    output.result(asdict(created), created.secret, json=json)


def _secret(given: str) -> str:
    if given != "-":
        # Not from the command line: every process of the machine sees that.
        raise typer.BadParameter("a secret is read from stdin; allowed: -", param_hint="--secret")
    return sys.stdin.readline().strip()


@app.command("list")
def list_(
    namespace: Annotated[str | None, typer.Argument(metavar="[NAMESPACE]", help="Only this one's.")] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """List tokens; the broker does not know their secrets.

    \b
    tarry token list
    tarry token list orders --json
    """
    with connect(endpoint) as client:
        tokens = client.tokens(namespace)
    if json:
        for token in tokens:
            output.json_line(_plain(token))
        return
    rows = [(t.id, t.namespace, output.instant(t.created_ms), _limits(t), t.description) for t in tokens]
    output.table(("ID", "NAMESPACE", "CREATED", "LIMITS", "DESCRIPTION"), rows)


@app.command()
def limit(
    token: Id,
    reads_max: Annotated[int, typer.Option("--reads", help="Receives in an interval; 0: any number.")] = 0,
    writes_max: Annotated[int, typer.Option("--writes", help="Schedules in an interval; 0: any number.")] = 0,
    interval_ms: Annotated[str, typer.Option("--interval", help="The interval: 1s, 5m.")] = "1s",
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Limit how often a token is used; without --reads and --writes, any number of times.

    \b
    tarry token limit 9f86d081884c7d65 --reads 100 --writes 1000 --interval 1s
    """
    with connect(endpoint) as client:
        found = client.limit_token(token, reads_max, writes_max, duration_ms(interval_ms, "--interval"))
    output.result(_plain(found), f"{found.id} of {found.namespace}: {_limits(found) or 'no limit'}", json=json)


@app.command()
def delete(token: Id, endpoint: Endpoint = DEFAULT_ENDPOINT) -> None:
    """Delete a token: whoever shows its secret is refused from now on.

    \b
    tarry token delete 9f86d081884c7d65
    """
    with connect(endpoint) as client:
        client.delete_token(token)


def _limits(token: AccessToken) -> str:
    limits = {"reads": token.reads_max, "writes": token.writes_max}
    given = [f"{count:,} {name}" for name, count in limits.items() if count]
    return f"{', '.join(given)} in {token.interval_ms:,} ms" if given else ""


def _plain(token: AccessToken) -> dict[str, object]:
    # The hash is for fronts; what people write to a terminal or a log need not have it.
    return {name: value for name, value in asdict(token).items() if name != "digest"}
