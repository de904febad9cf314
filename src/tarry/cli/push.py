"""``tarry push``: make, list, show, pause, try and remove push subscriptions; their last requests."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from tarry.api.settings import Start as StartName
from tarry.base.errors import InvalidArgumentError
from tarry.cli import output
from tarry.cli.exits import ExitCode
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, Start, connect, duration_ms

if TYPE_CHECKING:
    from tarry.api.push import CloudEventsMode, PushAttempt, PushInfo

app = typer.Typer(name="push", help="Messages that are POSTed to a URL when they are due.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The subscription.")]


@app.command()
def add(
    name: Name,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Whose messages; of a new one.")] = None,
    url: Annotated[str | None, typer.Argument(metavar="[URL]", help="Where to; of a new one.")] = None,
    group: Annotated[str | None, typer.Option(help="Its own group; push-NAME without it.")] = None,
    secrets: Annotated[
        list[str] | None,
        typer.Option("--secret", metavar="whsec_…", help="Sign with it; repeatable. Others may see it in `ps`."),
    ] = None,
    secret_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Sign with the secrets in this file, one a line.")
    ] = None,
    rotate: Annotated[bool, typer.Option("--rotate", help="Sign with a new secret, too, and show it.")] = False,
    headers: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME: VALUE", help="Send it, too; repeatable.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests at a time.")] = None,
    per_second: Annotated[float | None, typer.Option(help="Requests a second; 0: no limit.")] = None,
    timeout_ms: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="How long a request may take.")
    ] = None,
    breaker_failures: Annotated[
        int | None, typer.Option(help="So many failures in a row open the circuit breaker; 0: never.")
    ] = None,
    cloudevents: Annotated[
        str | None, typer.Option(metavar="off|binary|structured", help="Requests are CloudEvents in that mode.")
    ] = None,
    retry: Annotated[
        str | None, typer.Option(help="Back-off of its group: 'exponential 2s max 1h jitter 0.2'.")
    ] = None,
    tries: Annotated[int | None, typer.Option(help="Tries before a message is a dead letter; 0: no limit.")] = None,
    filter: Annotated[str | None, typer.Option(help="Which messages: 'a || b' are tags.")] = None,
    start: Start = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Push the messages of a topic to a URL, or change the subscription of that name.

    A new one gets a secret, which is shown this once, unless one is given.

    \b
    tarry push add shop orders https://shop.example/hooks/tarry
    tarry push add shop --concurrency 4 --per-second 50 --timeout 5s
    tarry push add shop --rotate
    tarry push add crm orders https://crm.example/in --filter paid --header 'Authorization: Bearer …' --tries 8
    """
    if secrets and secret_file is not None:
        raise InvalidArgumentError("--secret and --secret-file are both given; allowed: one of them")
    with connect(endpoint) as client:
        info = client.set_push(
            name,
            topic=topic,
            url=url,
            group=group,
            secrets=_lines(secret_file) if secret_file is not None else secrets or None,
            rotate=rotate,
            headers=dict(map(_header, headers)) if headers else None,
            concurrency=concurrency,
            per_second=per_second,
            timeout_ms=None if timeout_ms is None else duration_ms(timeout_ms, "--timeout"),
            breaker_failures=breaker_failures,
            cloudevents=cast("CloudEventsMode | None", cloudevents),
            retry=retry,
            tries=tries,
            filter=filter,
            start=cast("StartName | None", start),
        )
    _show(info, json)


@app.command("list")
def list_(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only this topic's.")] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """List subscriptions.

    \b
    tarry push list
    """
    with connect(endpoint) as client:
        infos = client.push_subscriptions(topic)
    if json:
        for info in infos:
            output.json_line(_plain(info))
        return
    rows = [
        (*(i.name, i.topic, i.state), *(f"{n:,}" for n in (i.in_flight, i.pushed, i.failed)), i.url, i.error or "-")
        for i in infos
    ]
    output.table(("NAME", "TOPIC", "STATE", "IN FLIGHT", "PUSHED", "FAILED", "URL", "LAST ERROR"), rows)


@app.command()
def show(name: Name, endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """Show a subscription, how it does, and where its group's messages are. Secrets are not shown.

    \b
    tarry push show shop
    """
    with connect(endpoint) as client:
        info = client.push_info(name)
        group = client.group_info(info.topic, info.group)
    more = {"group_info": {n: v for n, v in asdict(group).items() if n not in ("topic", "group")}}
    output.result({**_plain(info), **more}, {**_plain(info), **more}, json=json)


@app.command()
def remove(
    name: Name,
    keep_group: Annotated[bool, typer.Option("--keep-group", help="Its group stays, with what waits.")] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Push nothing more to it, and forget it, and its group; dead letters stay.

    \b
    tarry push remove shop
    """
    with connect(endpoint) as client:
        client.delete_push(name, keep_group=keep_group)


@app.command()
def pause(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why, for whoever looks.")] = "",
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Push nothing, until it is resumed.

    \b
    tarry push pause shop --reason 'they move'
    """
    with connect(endpoint) as client:
        client.pause_push(name, reason)
        _show_state(client.push_info(name), json)


@app.command()
def resume(name: Name, endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> None:
    """Push again, also where the circuit breaker is open.

    \b
    tarry push resume shop
    """
    with connect(endpoint) as client:
        client.resume_push(name)
        _show_state(client.push_info(name), json)


@app.command()
def attempts(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this subscription's.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="Of this message: its id, or its webhook-id.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only what was not answered by a 2xx.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 100,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """List the last requests and what came of them, the newest first.

    \b
    tarry push attempts shop --failed
    tarry push attempts --id order-7
    """
    with connect(endpoint) as client:
        found = client.push_attempts(name, id=id, failed=failed, limit=limit)
    if json:
        for attempt in found:
            output.json_line(_as_json(attempt))
        return
    rows = [
        (
            output.instant(a.at_ms),
            a.name,
            a.id,
            a.attempt,
            a.status or "-",
            f"{a.duration_ms:,.0f}",
            a.error or a.outcome,
        )
        for a in found
    ]
    output.table(("AT", "NAME", "ID", "TRY", "STATUS", "MS", "OUTCOME"), rows)


@app.command()
def test(name: Name, endpoint: Endpoint = DEFAULT_ENDPOINT, json: Json = False) -> int:
    """Send one signed request with a body of its own, and show the answer. Exit code 8: it is no 2xx.

    \b
    tarry push test shop
    """
    with connect(endpoint) as client:
        attempt = client.test_push(name)
    text = f"{attempt.outcome}: {attempt.error or attempt.status} after {attempt.duration_ms:,.0f} ms"
    if json:
        output.json_line(_as_json(attempt))
    else:
        output.lines(f"{text}\n{attempt.answer}".rstrip())
    return ExitCode.OK if attempt.outcome == "pushed" else ExitCode.NOT_DONE


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in file.read_text().splitlines() if line.strip()]


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        # Not the text itself: it may be a password.
        raise InvalidArgumentError("--header has no colon; allowed: NAME: VALUE")
    return name.strip(), value.strip()


def _plain(info: PushInfo) -> dict[str, Any]:
    """Return a subscription as plain data; of durations, what people ask for."""
    from tarry.base.histogram import Histogram

    plain = asdict(info)
    histogram = plain.pop("duration_us")
    if histogram:
        plain["duration_us"] = Histogram.from_json(histogram).summary()
    if plain["secret"] is None:
        del plain["secret"]
    return plain


def _as_json(attempt: PushAttempt) -> dict[str, Any]:
    return {**asdict(attempt), "at": output.instant(attempt.at_ms)}


def _show(info: PushInfo, json: bool) -> None:
    output.result(_plain(info), _plain(info), json=json)


def _show_state(info: PushInfo, json: bool) -> None:
    why = f" ({info.reason})" if info.reason else ""
    output.result(_plain(info), f"{info.name}: {info.state}{why}", json=json)
