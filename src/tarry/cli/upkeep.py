"""``tarry compact`` and ``tarry expire``: upkeep of a broker's store, at once, with Spark or without."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Annotated

import typer

from tarry.base.errors import InvalidArgumentError
from tarry.cli import output
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, SparkConf, SparkConfFile

Store = Annotated[str | None, typer.Option("--store", metavar="URI", help="The store, where not what the broker says.")]
Older = Annotated[bool, typer.Option("--older", help="Also rewrite files of before the table had all its columns.")]


def compact(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    store: Store = None,
    older: Older = False,
    spark_master: Annotated[
        str | None, typer.Option("--spark-master", metavar="URL", help="Have it done there; without: in this process.")
    ] = None,
    spark_memory: Annotated[str, typer.Option("--spark-memory", help="With that: heap of its driver.")] = "1g",
    tasks: Annotated[
        int, typer.Option("--tasks", min=0, help="With that: most tasks at once; 0: half of the executors' cores.")
    ] = 0,
    spark_conf: SparkConf = None,
    spark_conf_file: SparkConfFile = None,
    json: Json = False,
) -> None:
    """Merge, cut and expire the files of the store, until nothing is left to do.

    The pipeline does so by itself, with Spark; this goes one after the other, and may run beside it. Much that is left
    goes faster with --spark-master (extra "spark"), which the store must be in reach of.

    \b
    tarry compact
    tarry compact --store s3://bucket/store --json
    tarry compact --older
    tarry compact --spark-master spark://host:7077 --tasks 16 --spark-conf spark.cores.max=16
    """
    if spark_master is None:
        if spark_conf or spark_conf_file:
            raise InvalidArgumentError("settings for Spark are given without --spark-master; allowed: both, or neither")
        _run(endpoint, store, json, compact=True, older=older)
        return
    from tarry.spark.broker_client import BrokerClient
    from tarry.spark.pipeline.compact import once
    from tarry.spark.pipeline.upkeep import UpkeepSettings, cores_for_upkeep, on_spark
    from tarry.spark.reports.session import report_session
    from tarry.spark.runtime.conf import user_conf

    conf = user_conf(spark_conf, spark_conf_file)
    with (
        BrokerClient(endpoint) as client,
        report_session("tarry-compact", master=spark_master, memory=spark_memory, conf=conf) as spark,
    ):
        settings = UpkeepSettings(tasks=tasks, older=older)
        cores = partial(cores_for_upkeep, spark)
        _show(once(client, store, settings, on_spark(spark), threading.Event(), cores), json)


def expire(endpoint: Endpoint = DEFAULT_ENDPOINT, store: Store = None, json: Json = False) -> None:
    """Take files whose messages have all fired out of the store, and delete those taken out long ago.

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
        _show(once(client, store, settings, in_process, threading.Event()), json)


def _show(totals: Mapping[str, int], json: bool) -> None:
    output.result(totals, dict(sorted(totals.items())) or {"works": 0}, json=json)
