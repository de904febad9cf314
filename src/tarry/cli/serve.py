"""``tarry serve``: settings, and a broker for as long as the process lives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from tarry.base.errors import InvalidArgumentError
from tarry.cli import output

TEST_CLOCK = "--test-clock"


class ServeCommand(typer.core.TyperCommand):
    """The command, of which one option has a value or none, which Typer cannot say."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments: a test clock without an instant begins now."""
        given: list[str] = []
        for at, argument in enumerate(args):
            given.append(argument)
            if argument == TEST_CLOCK and (at + 1 == len(args) or args[at + 1].startswith("-")):
                given.append("now")
        return super().parse_args(ctx, given)


def serve(
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Directory of the logs and the store.")] = None,
    flight: Annotated[str | None, typer.Option(metavar="HOST:PORT", help='Arrow Flight; "" is off.')] = None,
    rocketmq: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="RocketMQ's v5 clients.")] = None,
    remoting: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="RocketMQ's classic clients.")] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes of each RocketMQ and HTTP front; 0: inside.")
    ] = None,
    http: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="lmstfy's API, Tarry's own.")] = None,
    http_admin: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="lmstfy's admin API.")] = None,
    metrics: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Prometheus, over HTTP.")] = None,
    pipeline: Annotated[str | None, typer.Option(metavar="on|off", help="Run the Spark pipeline beside it.")] = None,
    spark_master: Annotated[str | None, typer.Option(metavar="URL", help="Where the pipeline runs.")] = None,
    spark_conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting for Spark; repeatable.")
    ] = None,
    spark_conf_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="More of them, as in spark-defaults.conf.")
    ] = None,
    store: Annotated[str | None, typer.Option(metavar="URI", help="The store's Delta table, where not in DIR.")] = None,
    log: Annotated[
        str | None, typer.Option(metavar="URI", help="The logs, where not in DIR: s3://…, for a takeover.")
    ] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="With --log: follow the owner of the logs, and serve when it ends.")
    ] = False,
    test_clock: Annotated[
        str | None,
        typer.Option(metavar="[INSTANT]", help="For tests: the clock stands until `tarry advance`."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other setting; repeatable.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", envvar="TARRY_CONFIG", help="Read settings from this TOML file.")
    ] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print all settings as TOML, and end.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run a broker, until SIGTERM or SIGINT.

    A second signal ends it at once, which loses nothing either. Settings come from the command line, the environment
    (TARRY_DATA, TARRY_HORIZON_MS, ...), the file, or are the default: in that order. One line on stdout says when it
    serves; the log goes to stderr.

    \b
    tarry serve --data data
    tarry serve --data data --flight 0.0.0.0:7611 --set insecure_open=flight --pipeline off   # in a trusted network
    tarry serve --data data --rocketmq 127.0.0.1:8081 --remoting 127.0.0.1:9876
    tarry serve --data data --rocketmq 127.0.0.1:8081 --workers 2
    tarry serve --data data --set horizon_ms=2m --set wheel_bytes_max=256MiB
    tarry serve --data cache --log s3://bucket/log --store s3://bucket/store --standby
    tarry serve --data $(mktemp -d) --http 127.0.0.1:7777 --test-clock       # a month in a test: docs/testing.md
    tarry serve --print-config > tarry.toml; tarry serve --config tarry.toml
    """
    from tarry.base.config import load
    from tarry.fronts.registry import ServerConfig

    given = pairs(settings or [])
    options = {
        **_given(data=data, flight=flight, rocketmq=rocketmq, remoting=remoting),
        **_given(spark_conf=spark_conf or None, spark_conf_file=spark_conf_file),
        **_given(
            http=http, http_admin=http_admin, log=log, takeover=given.get("takeover", "auto") if standby else None
        ),
        **_given(test_clock=test_clock),
        **_given(workers=workers, metrics=metrics, pipeline=pipeline, spark_master=spark_master, store=store),
    }
    _check_agreement(options, given)
    loaded = load(config, given | options, model=ServerConfig)
    if print_config:
        output.lines(loaded.to_toml().rstrip())
        return
    from tarry.cli.server import run

    run(loaded.config, unknown_variables=loaded.unknown_variables, verbose=verbose)


def _given(**flags: Any) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _check_agreement(options: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Refuse a setting that an option and ``--set`` give differently.

    Raises:
        InvalidArgumentError: names both, without values for Spark, some of which are secrets.
    """
    for name in (each for each in options if each in given):
        value = "\n".join(options[name]) if isinstance(options[name], list) else str(options[name])
        if value != given[name]:
            option, set_ = f"--{name.replace('_', '-')}", f"--set {name}"
            if name != "spark_conf":
                option, set_ = f"{option} {value}", f"{set_}={given[name]}"
            raise InvalidArgumentError(f"{option} and {set_} contradict each other; allowed: one of them")


def pairs(settings: list[str]) -> dict[str, str]:
    values = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidArgumentError(f"--set {text}: no value; allowed: NAME=VALUE")
        values[name.strip()] = value
    return values
