"""``tarry send``: schedule one message, or one a line."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from tarry.base.errors import (
    InvalidArgumentError,
    InvalidMessageError,
    MessageTooLargeError,
    TarryError,
    UnavailableError,
)
from tarry.cli import output
from tarry.cli.exits import ExitCode
from tarry.cli.ledger import Ledger, LedgerFile, open_ledger
from tarry.cli.message_options import option_name, with_options
from tarry.cli.options import (
    DEFAULT_ENDPOINT,
    Delayed,
    Due,
    Endpoint,
    Json,
    Level,
    connect,
    not_empty,
    when,
)
from tarry.cli.recurrence import Cron, Every, Rule, Times, Until, Zone, repeat_json
from tarry.message.options import OPTIONS, UNMET

if TYPE_CHECKING:
    import pyarrow as pa

    from tarry.client import Accepted

READ_BYTES = 2 << 20
"""Lines are sent in batches of about this size, or of what there is: a slow pipe is not waited for."""
LINE_BYTES_MAX = 128 << 20

Fields = dict[str, Any]


@with_options
def send(
    topic: Annotated[str, typer.Argument(help="Where it will be delivered.")],
    body: Annotated[str | None, typer.Argument(help="The body; without it, --file or stdin.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help='Read from this file; "-" is stdin.')] = None,
    empty: Annotated[bool, typer.Option("--empty", help="Send a message without a body, if nothing is read.")] = False,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a message.")] = False,
    delay: Delayed = None,
    due: Due = None,
    level: Level = None,
    repeat: Rule = None,
    every: Every = None,
    cron: Cron = None,
    zone: Zone = None,
    times: Times = None,
    until: Until = None,
    ledger: LedgerFile = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
    *,
    options: Fields,
) -> None:
    """Schedule a message, or one a line.

    Returns when it is on the broker's disk. Without a delay, it is due at once.

    \b
    tarry send orders 'unpaid?' --delay 30m
    tarry send orders --file order.json --due 2026-12-01T06:00:00Z --key order-7
    echo hello | tarry send greetings --delay 5s --json
    tarry send orders --lines --file orders.txt --delay 1h --ledger sent.jsonl
    tarry send reports 'make it' --cron '0 9 * * MON-FRI' --zone Europe/Berlin --key daily
    """
    column, value = when(delay, due, level)
    fields: Fields = {
        "topic": topic,
        column: value,
        **options,
        "repeat": repeat_json(repeat, every, cron, zone, times, until),
    }
    if body is not None and (file is not None or lines):
        raise InvalidArgumentError("a body, and --file or --lines, are given; allowed: one of them")
    _check_names(fields, lines)
    if ledger is not None and fields["repeat"] is not None:
        raise InvalidArgumentError(
            f"--ledger {ledger} with a series: each of its occurrences is a message of its own, of which the answer "
            "tells nothing; allowed: a message without --repeat, --every and --cron"
        )
    with open_ledger(ledger) as rows:
        if body is not None:
            _send_one(endpoint, fields, body.encode(errors="surrogateescape"), rows, json)
        else:
            _send_file(endpoint, fields, file, rows, json, lines=lines, empty=empty)


def _send_file(
    endpoint: str, fields: Fields, file: Path | None, ledger: Ledger, json: bool, *, lines: bool, empty: bool
) -> None:
    with _open(file) as source:
        if lines:
            _send_lines(endpoint, fields, source, ledger, json, empty=empty)
            return
        body = source.read()
        if not body and not empty:
            raise _nothing_in(source, "so there is no body; allowed: one, or --empty")
        _send_one(endpoint, fields, body, ledger, json)


def _check_names(fields: Fields, lines: bool) -> None:
    for option in OPTIONS:
        if option.is_name:
            not_empty(fields[option.name], option_name(option))
    for name, written in (("on_key", "--on-key"), ("if_seq", "--if-seq")):
        if fields["key"] is None and fields[name] is not None:
            raise InvalidArgumentError(f"{written} {fields[name]} without --key; allowed: with it")
    for name in ("id", "key"):
        if lines and fields[name] is not None:
            raise InvalidArgumentError(
                f"--{name} {fields[name]} with --lines: only one would be scheduled; leave it out"
            )


def _send_one(endpoint: str, fields: Fields, body: bytes, ledger: Ledger, json: bool) -> None:
    asked_ms = time.time_ns() // 1_000_000
    try:
        with connect(endpoint) as client:
            [accepted] = client.schedule_batch(_batch(fields, [body]))
    except InvalidMessageError as error:
        raise type(error)(str(error).removeprefix("row 0: ")) from error
    except UnavailableError:
        ledger.unanswered(fields["topic"], fields["id"])
        raise
    [receipt] = accepted.receipts([fields["id"]])
    ledger.accepted(fields["topic"], [receipt], asked_ms=asked_ms, ttl_ms=fields["ttl_ms"])
    output.receipt(receipt, json)
    if receipt.outcome in UNMET:
        raise typer.Exit(ExitCode.NOT_DONE)


def _nothing_in(source: BinaryIO, consequence: str) -> InvalidArgumentError:
    # As a rule it is a pipe whose other end has failed.
    name = str(getattr(source, "name", "<stdin>"))
    return InvalidArgumentError(f"{'stdin' if name == '<stdin>' else name} is empty, {consequence}")


def _send_lines(endpoint: str, fields: Fields, source: BinaryIO, ledger: Ledger, json: bool, *, empty: bool) -> None:
    count = _Count(ledger, fields)
    try:
        with connect(endpoint) as client, _progress(source) as advance:
            for bodies in _lines(source):
                before = count.start()
                try:
                    client.schedule_batch(_batch(fields, bodies), progress=count.add)
                except InvalidMessageError as error:
                    raise _of_line(error, before, count.rows) from error
                advance(sum(map(len, bodies)) + len(bodies), count.rows)
    except InvalidMessageError:
        raise
    except TarryError as error:
        # What was under way may have been accepted, too; what is counted certainly was.
        raise type(error)(f"{error}; certainly accepted: the first {count.rows} lines") from error
    if not count.rows and not empty:
        raise _nothing_in(source, "so there is no line; allowed: one, or --empty")
    data = {"accepted": count.rows, "first_seq": count.first_seq, "last_seq": count.last_seq}
    output.result(data, f"{count.rows:,} messages scheduled", json=json)


class _Count:
    """Count of accepted lines, with their numbers; they go to the ledger, too."""

    def __init__(self, ledger: Ledger, fields: Fields) -> None:
        self._ledger, self._fields = ledger, fields
        self._asked_ms = 0
        self.rows = 0
        self.first_seq: int | None = None
        self.last_seq: int | None = None

    def start(self) -> int:
        """Note that more lines are sent, and return how many were accepted before."""
        self._asked_ms = time.time_ns() // 1_000_000
        return self.rows

    def add(self, accepted: Accepted) -> None:
        receipts = accepted.receipts([None] * accepted.count)
        ttl_ms = self._fields["ttl_ms"]
        self._ledger.accepted(self._fields["topic"], receipts, asked_ms=self._asked_ms, ttl_ms=ttl_ms)
        self.rows += accepted.count
        self.first_seq = accepted.first_seq if self.first_seq is None else self.first_seq
        self.last_seq = accepted.first_seq + accepted.count - 1


def _of_line(error: InvalidMessageError, before: int, accepted: int) -> InvalidMessageError:
    text = str(error)
    if error.row is not None:
        text = f"line {before + error.row + 1}: {text.removeprefix(f'row {error.row}: ')}"
    return type(error)(f"{text}; accepted: the first {accepted} lines")


def _batch(fields: Fields, bodies: list[bytes]) -> pa.RecordBatch:
    import pyarrow as pa

    from tarry.message.row_columns import COLUMNS
    from tarry.message.topics import check_topic

    kinds = dict(COLUMNS)
    check_topic(fields["topic"])
    columns = {"body": pa.array(bodies, pa.binary())}
    for name, value in fields.items():
        if value is not None:
            try:
                columns[name] = pa.repeat(pa.scalar(value, kinds[name]), len(bodies))
            except (pa.ArrowException, UnicodeEncodeError, OverflowError) as error:
                raise InvalidArgumentError(f"{name} {value!r} is not allowed: {error}") from error
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """Lines without their ends, as many at once as there are; the last needs no end."""
    rest = b""
    while block := _read(source):
        *whole, rest = (rest + block).split(b"\n")
        if whole:
            yield [one.removesuffix(b"\r") for one in whole]
        if len(rest) > LINE_BYTES_MAX:
            raise MessageTooLargeError(f"a line has more than {LINE_BYTES_MAX} bytes")
    if rest:
        yield [rest.removesuffix(b"\r")]


def _read(source: BinaryIO) -> bytes:
    # read1 gives what a pipe holds without waiting for more.
    read = getattr(source, "read1", source.read)
    data: bytes = read(READ_BYTES)
    return data


def _open(file: Path | None) -> AbstractContextManager[BinaryIO]:
    if file is not None and str(file) != "-":
        return file.open("rb")
    if file is None and sys.stdin.isatty():
        raise InvalidArgumentError("no body: give it as an argument, by --file, or on stdin")
    return nullcontext(sys.stdin.buffer)


def _progress(source: BinaryIO) -> AbstractContextManager[Callable[[int, int], None]]:
    """Show a file's progress on a terminal; the context is a function of bytes more, and messages in all."""
    if not sys.stderr.isatty():
        return nullcontext(lambda more, sent: None)
    return _bar(source)


@contextmanager
def _bar(source: BinaryIO) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    state = os.fstat(source.fileno())
    columns = (BarColumn(), DownloadColumn(), TextColumn("{task.fields[sent]:,} messages"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=state.st_size if stat.S_ISREG(state.st_mode) else None, sent=0)
        yield lambda more, sent: progress.update(task, advance=more, sent=sent)
