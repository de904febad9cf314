"""``tarry receive``: print messages as they become due, and acknowledge them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.cli import output
from tarry.cli.ledger import Ledger, LedgerFile, open_ledger
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, Start, connect, duration_ms

if TYPE_CHECKING:
    from tarry.client import Client, Delivery

GROUP = "cli"
"""Group of the messages if none is named."""
ONCE_MAX = 1000
"""Most messages asked for in one call."""
WAIT_MS_MAX = 20_000
"""Longest wait of one call; longer ones are several calls, so that a lost broker is noticed."""

Show = Callable[..., None]
"""Prints a message; with the ledger that it goes to."""


def receive(
    topic: Annotated[str, typer.Argument(help="What to receive.")],
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help=f'Consumers of one group share the messages; else the group "{GROUP}".'),
    ] = None,
    most: Annotated[int, typer.Option("--max", "-n", min=1, help="At most so many, then end.")] = 1,
    wait: Annotated[str, typer.Option("--wait", "-w", help="How long for the next one; a number is in seconds.")] = "0",
    follow: Annotated[bool, typer.Option("--follow", help="For ever, also over restarts of the broker.")] = False,
    ack: Annotated[
        bool, typer.Option("--ack/--no-ack", help="Without: they come again when the lease has expired.")
    ] = True,
    start: Start = None,
    broadcast: Annotated[
        str | None, typer.Option("--broadcast", metavar="NAME", help="All messages, not a share, for this consumer.")
    ] = None,
    ledger: LedgerFile = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Receive messages that are due.

    Each is acknowledged once it is printed: the group does not get it again, other groups do. Ends after --max
    messages, or when none comes within --wait. Text output is: due time, how late it was handed out, id, body. To look
    without taking anything: tarry peek.

    \b
    tarry receive orders --group billing --wait 1m
    tarry receive orders --group billing --max 100 --json --ledger got.jsonl
    tarry receive orders --group billing --follow --json | jq -r .body
    """
    wait_ms = duration_ms(wait, "--wait")
    if follow and not ack:
        raise InvalidArgumentError(
            "--follow with --no-ack would print the same messages for ever; allowed: one of them"
        )
    # A consumer of a broadcast is a group of its own.
    own = GROUP if group is None else group
    show: Show = partial(_show, json=json, group=own if broadcast is None else f"{own}@{broadcast}")
    if group is None:
        show = _with_note(show, "acknowledged" if ack else "leased", topic)
    with open_ledger(ledger) as rows, connect(endpoint) as client:
        _note_unknown(client, topic, follow=follow)
        if follow:
            _follow(client, topic, partial(show, ledger=rows), group=own, start=start, broadcast=broadcast)
            return
        count = 0
        for message in _messages(client, topic, most, wait_ms, group=own, start=start, broadcast=broadcast):
            show(message, ledger=rows)
            count += 1
            if ack:
                message.ack()
        client.flush()
    if not count and not json and sys.stderr.isatty():
        output.note("no message is due")


def _note_unknown(client: Client, topic: str, *, follow: bool) -> None:
    """Say that nobody has named the topic: it may be misspelt, or have no message yet."""
    try:
        if not client.has_topic(topic):
            output.note(f"there is no topic {topic!r:.300} yet; tarry pending and tarry group list show those that are")
    except UnavailableError:
        if not follow:
            raise


def _with_note(show: Show, done: str, topic: str) -> Show:
    """Say, before the first message, whose it is now: nobody has named a group."""
    said = False

    def noted(message: Delivery, *, ledger: Ledger) -> None:
        nonlocal said
        if not said:
            said = True
            output.note(f"no --group: messages are {done} as group {GROUP!r}; tarry peek {topic} looks without taking")
        show(message, ledger=ledger)

    return noted


def _messages(client: Client, topic: str, most: int, wait_ms: int, **source: Any) -> Iterator[Delivery]:
    left, waited = most, 0
    while left:
        part = min(wait_ms - waited, WAIT_MS_MAX)
        got = client.receive(topic, max_messages=min(left, ONCE_MAX), wait=part / 1000, **source)
        yield from got
        left -= len(got)
        waited = 0 if got else waited + part
        if not got and waited >= wait_ms:
            return


def _follow(client: Client, topic: str, show: Callable[[Delivery], None], **source: Any) -> None:
    with client.consume(topic, **source) as consumer:
        for message in consumer:
            show(message)
            message.ack()


def _show(message: Delivery, *, json: bool, group: str, ledger: Ledger) -> None:
    ledger.delivered(message, group)
    if not json:
        due = output.instant(message.due_ms)
        output.line(f"{due} +{message.lateness_ms:.1f} ms  {message.id}  {output.body_text(message.body)}")
        return
    names = ("id", "seq", "key", "tag", "properties", "due_ms", "born_ms", "attempt", "offset", "lateness_ms")
    fields: dict[str, Any] = {"topic": message.topic, **{name: getattr(message, name) for name in names}}
    output.json_line({**fields, "due": output.instant(message.due_ms), **output.body_fields(message.body)})
