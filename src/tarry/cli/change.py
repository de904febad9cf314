"""``tarry cancel``, ``tarry reschedule`` and ``tarry find-key``: changes of pending messages."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.cli import output
from tarry.cli.exits import ExitCode, report
from tarry.cli.options import DEFAULT_ENDPOINT, Delayed, Due, Endpoint, Json, Level, connect, not_empty, when

if TYPE_CHECKING:
    from tarry.api.outcome import Outcome
    from tarry.client import Client

LINE_BYTES_MAX = 1000
"""A line of a file of handles: they have 50 characters."""

Key = Annotated[
    tuple[str, str] | None, typer.Option("--key", metavar="TOPIC KEY", help="Instead: what is pending under this key.")
]


def cancel(
    handles: Annotated[
        list[str] | None, typer.Argument(metavar="[HANDLE...]", help='As "tarry send" gave them; "-" is stdin.')
    ] = None,
    key: Key = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help='Handles from this file, one a line; "-" is stdin.')
    ] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="Instead: all of a bulk job.")] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only of this topic: a message of another one is refused.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="With --topic: all that is pending in it.")] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Cancel messages that are pending.

    Says of each: done (no consumer will ever get it), delivered, cancelled (before), or unknown. Exit code 8 when one
    was not done. A handle that is none, or not of the topic, is refused before anything is cancelled.

    \b
    tarry cancel AQ4AAAAAAAAA...
    tarry cancel --topic orders --all
    tarry cancel --key orders order-7
    tarry cancel --job nightly-2026-11-21
    jq -r .handle sent.jsonl | tarry cancel -
    """
    if file is None and handles == ["-"]:
        handles, file = None, Path("-")
    not_empty(topic, "--topic")
    _check_topic_option(topic, key, job, everything)
    if sum(way is not None for way in (handles or None, key, file, job, everything or None)) != 1:
        ways = "--key TOPIC KEY, or --file, or --job" if topic is None else "--file, or --key TOPIC KEY, or --all"
        raise InvalidArgumentError(f"allowed: handles, or {ways}; exactly one of them")
    if job is not None:
        _cancel_job(job, endpoint, json)
        return
    if topic is not None and everything:
        _cancel_topic(topic, endpoint, json)
        return
    with connect(endpoint) as client:
        if key is not None:
            named, outcomes = [" ".join(key)], [client.cancel_key(*key)]
        elif file is None:
            named, outcomes = _cancel(client, handles or [], None, topic)
        else:
            by_line = _handles(file)
            named, outcomes = _cancel(client, list(by_line.values()), list(by_line), topic)
    for name, outcome in zip(named, outcomes, strict=True):
        if not json:
            output.line(f"{outcome:9}  {name}")
        elif key is not None:
            output.json_line({"topic": key[0], "key": key[1], "outcome": outcome})
        else:
            output.json_line({"handle": name, "outcome": outcome})
    _end(outcomes)


def _check_topic_option(topic: str | None, key: tuple[str, str] | None, job: str | None, everything: bool) -> None:
    if topic is None:
        if everything:
            raise InvalidArgumentError("--all is given without --topic; allowed: both, for all of one topic")
    elif job is not None:
        raise InvalidArgumentError(
            "--job and --topic are both given; allowed: one of them, a job is cancelled as a whole"
        )
    elif key is not None and key[0] != topic:
        raise InvalidArgumentError(
            f"--key is of topic {key[0]!r:.300}, and --topic is {topic!r:.300}; allowed: one topic"
        )


def _cancel_topic(topic: str, endpoint: str, json: bool) -> None:
    from tarry.cli.topic_cancelling import cancel_topic

    with connect(endpoint) as client:
        result = cancel_topic(client, topic)
    text = f"{result.outcome:9}  {topic}  {result.cancelled} of {result.messages} messages"
    output.result({"topic": topic, **result._asdict()}, text, json=json)
    _end([result.outcome])


def _cancel_job(job: str, endpoint: str, json: bool) -> None:
    with connect(endpoint) as client:
        result = client.cancel_job(job)
    text = f"{result.outcome:9}  {job}  {result.cancelled} of {result.rows} messages"
    output.result({"job": job, **asdict(result)}, text, json=json)
    _end([result.outcome])


def jobs(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="This one only.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Most jobs.")] = 20,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Show bulk jobs, the newest first.

    \b
    tarry jobs
    tarry jobs nightly-2026-11-21 --json
    """
    with connect(endpoint) as client:
        listed = client.jobs(job, limit=limit)
    if job is not None and not listed:
        raise NotFoundError(f"nothing is known of job {job!r}")
    for each in listed:
        topics = ", ".join(sorted(each.topics)[:3]) + (", ..." if len(each.topics) > 3 else "")
        text = f"{each.state:10}  {each.rows:>12,}  {each.job}  {topics}".rstrip()
        output.result(asdict(each), text, json=json)


def reschedule(
    handle: Annotated[str | None, typer.Argument(metavar="[HANDLE]", help='As "tarry send" gave it.')] = None,
    key: Key = None,
    delay: Delayed = None,
    due: Due = None,
    level: Level = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Move a pending message to another time.

    Prints its new handle; the former one names nothing any more. Exit code 8 when it was delivered or cancelled before,
    or is not known.

    \b
    tarry reschedule AQ4AAAAAAAAA... --delay 2h
    tarry reschedule --key orders order-7 --due 2026-12-01T06:00:00Z
    """
    if (handle is None) == (key is None):
        raise InvalidArgumentError("allowed: a handle, or --key TOPIC KEY; exactly one of them")
    if delay is None and due is None and level is None:
        raise InvalidArgumentError("no new time; allowed: one of --delay, --due, --level")
    from tarry.base.delay import DelayLevel

    way, value = when(delay, due, level)
    new: dict[str, dict[str, Any]] = {
        "due_ms": {"due": value},
        "delay_ms": {"delay": f"{value}ms"},
        "delay_level": {"delay": DelayLevel(value)},
    }
    with connect(endpoint) as client:
        if key is not None:
            moved = client.reschedule_key(*key, **new[way])
        else:
            moved = client.reschedule(handle or "", **new[way])
    if moved.receipt is not None:
        output.receipt(moved.receipt, json, outcome=moved.outcome)
    else:
        output.result({"outcome": moved.outcome}, moved.outcome, json=json)
    _end([moved.outcome])


def find_key(
    topic: Annotated[str, typer.Argument(help="Where it will be delivered.")],
    key: Annotated[str, typer.Argument(help="Its name.")],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Show what is pending under a key: its id, due time and handle.

    Exit code 8 when nothing is.

    \b
    tarry find-key orders order-7 --json
    """
    with connect(endpoint) as client:
        receipt = client.find_key(topic, key)
    if receipt is None:
        report(NotFoundError.code, f"nothing is pending under key {key!r} in topic {topic!r}")
        raise typer.Exit(ExitCode.NOT_DONE)  # as cancelling it says
    output.receipt(receipt, json)


def _cancel(
    client: Client, handles: list[str], lines: list[int] | None, topic: str | None
) -> tuple[list[str], list[Outcome]]:
    if topic is not None:
        from tarry.cli.topic_cancelling import check_topic_of

        check_topic_of(client, topic, handles, lines)
    try:
        return handles, client.cancel_many(handles)
    except InvalidArgumentError as error:
        place = re.match(r"handle (\d+): ", str(error))
        if place is None:
            raise
        # The text says which handle; where it was is worth saying of a file.
        where = "" if lines is None else f"line {lines[int(place[1])]}: "
        raise type(error)(f"{where}{str(error)[place.end() :]}; nothing was cancelled") from error


def _handles(file: Path) -> dict[int, str]:
    """Read handles by their lines, which count from 1; empty lines are nothing."""
    handles: dict[int, str] = {}
    with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as source:
        number = 0
        while line := source.readline(LINE_BYTES_MAX):
            number += 1
            if len(line) == LINE_BYTES_MAX:
                raise InvalidArgumentError(f"line {number} has more than {LINE_BYTES_MAX} bytes; allowed: a handle")
            if text := line.strip():
                handles[number] = text.decode(errors="backslashreplace")
    return handles


def _end(outcomes: Sequence[Outcome]) -> None:
    if any(outcome != "done" for outcome in outcomes):
        raise typer.Exit(ExitCode.NOT_DONE)
