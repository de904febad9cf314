"""``tarry compact`` and ``tarry expire``: the upkeep of a broker's store, at once and without Spark."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from tarry.cli import output
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json

Store = Annotated[str | None, typer.Option("--store", metavar="URI", help="The store, where not what the broker says.")]
Older = Annotated[bool, typer.Option("--older", help="Also rewrite files of before the table had all its columns.")]


def compact(
    endpoint: Endpoint = DEFAULT_ENDPOINT, store: Store = None, older: Older = False, json: Json = False
) -> None:
    """Merge, cut and expire the files of the store, until nothing is left to do.

    The pipeline does so by itself, with Spark; this goes one after the other, and may run beside it.

    \b
    tarry compact
    tarry compact --store s3://bucket/store --json
    tarry compact --older
    """
    _run(endpoint, store, json, compact=True, older=older)


def expire(endpoint: Endpoint = DEFAULT_ENDPOINT, store: Store = None, json: Json = False) -> None:
    """Take files out of the store of which all messages have fired, and delete those that were taken out long ago.

    \b
    tarry expire
    """
    _run(endpoint, store, json, compact=False, older=False)


def _run(endpoint: str, store: str | None, json: bool, *, compact: bool, older: bool) -> None:
    from tarry.spark.broker_client import BrokerClient
    from tarry.spark.pipeline.compact import in_process, once
    from tarry.spark.pipeline.upkeep import UpkeepSettings

    settings = UpkeepSettings(compact=compact, older=older)
    with BrokerClient(endpoint) as client:
        totals = once(client, store, settings, in_process, threading.Event())
    output.result(totals, dict(sorted(totals.items())) or {"works": 0}, json=json)
