"""``tarry bridge``: delay for a broker that has none, beside it."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Annotated

import typer

from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.base.extras import missing_extra
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint

app = typer.Typer(name="bridge", help="Delay for a broker that has none, beside it.", no_args_is_help=True)


@app.callback()
def bridge() -> None:
    """Keep the command's name, while there is one alone."""


@app.command()
def rabbitmq(
    url: Annotated[
        str,
        typer.Option(
            envvar="TARRY_AMQP_URL", metavar="amqp://USER@HOST/VHOST", help="RabbitMQ; its password in a file."
        ),
    ] = "amqp://guest@127.0.0.1/",
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Has the user's password; else that of the URL, or guest.")
    ] = None,
    exchange: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TARGET", help="What is published to NAME goes to TARGET when due; repeatable."),
    ] = None,
    queue: Annotated[str, typer.Option(help="Queue that the bridge takes from, and exchange by which it does.")] = (
        "tarry.delay"
    ),
    queue_type: Annotated[str, typer.Option(metavar="quorum|classic", help="Of the queue.")] = "quorum",
    ordered: Annotated[bool, typer.Option("--ordered", help="One message of a routing key at a time.")] = False,
    window: Annotated[int, typer.Option(min=1, max=65_535, help="Messages under way at most, each way.")] = 1000,
    tries: Annotated[int, typer.Option(min=0, help="Before a message that no queue takes is a dead letter.")] = 16,
    metrics: Annotated[
        str | None, typer.Option(metavar="[HOST:]PORT", help="Prometheus, over HTTP; a port alone: on this machine.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Have the broker in this process, of this directory; served at --endpoint."),
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Keep RabbitMQ's messages until they are due, until SIGTERM or SIGINT.

    A message says when by the header x-delay (milliseconds), as of the plugin rabbitmq-delayed-message-exchange, or
    x-tarry-due. docs/rabbitmq.md has all of it.

    \b
    tarry bridge rabbitmq --exchange orders.delayed=orders
    tarry bridge rabbitmq --exchange orders.delayed=orders --data data       # without a tarry serve
    tarry bridge rabbitmq --url amqp://bridge@rabbit/shop --password-file FILE --exchange orders.delayed=orders
    """
    from tarry.base.logs import log_to_stderr

    try:
        from tarry.bridge.settings import BridgeSettings, pairs
        from tarry.cli.bridge_process import serve
    except ImportError as error:
        raise NotFoundError(missing_extra("the bridge beside RabbitMQ", "rabbitmq", error)) from error
    log_to_stderr(verbose=verbose)
    logging.getLogger("aiormq").setLevel(logging.DEBUG if verbose else logging.CRITICAL)  # the bridge tells of it
    if queue_type not in ("quorum", "classic"):
        raise InvalidArgumentError(f"--queue-type is {queue_type!r}; allowed: quorum, classic")
    settings = BridgeSettings(
        url=with_password(url, password_file), queue=queue, queue_type=queue_type, exchanges=pairs(exchange or []),
        window=window, ordered=ordered, tries=tries,
    )  # fmt: skip
    serve(settings, endpoint, metrics, data)


def with_password(url: str, file: Path | None) -> str:
    """Return a URL with the password that a file has.

    Raises:
        InvalidArgumentError: it is no URL of AMQP, or the file cannot be read.
    """
    from yarl import URL

    try:
        parsed = URL(url)
        if parsed.scheme not in ("amqp", "amqps") or not parsed.host:
            raise ValueError
    except ValueError:
        given = re.sub(r":(?!//).*@", ":***@", url)  # without the password
        raise InvalidArgumentError(
            f"--url is {given!r}; allowed: amqp://USER@HOST/VHOST or amqps://USER@HOST/VHOST"
        ) from None
    if file is None:
        return str(parsed if parsed.password is not None or parsed.user != "guest" else parsed.with_password("guest"))
    try:
        return str(parsed.with_password(file.read_text().strip()))
    except OSError as error:
        raise InvalidArgumentError(f"--password-file is {file}: {error.strerror}; allowed: a file") from error
