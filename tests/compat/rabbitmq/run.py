"""Programs written for RabbitMQ's delayed-message plugin, with the bridge's exchange, beside a real RabbitMQ.

``python -m tests.compat.rabbitmq.run [--language NAME]``. All that a program is told is RabbitMQ's URL, and the name of
the exchange. What is not installed is left out, and said so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.compat.sources import NoSourceError
from tests.rabbitmq.place import bridged
from tests.rabbitmq.server import FOUND, WHY_NOT, RabbitServer
from tests.waiting import wait_until

from .programs import PROGRAMS

PREFIX = "rabbitmq-"
PROGRAM_S_MAX = 300


def main(arguments: list[str] | None = None) -> int:
    """Try programs; 0: none failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.rabbitmq.run", description=__doc__)
    parser.add_argument("--language", action="append", type=_language, help=f"{', '.join(PROGRAMS)}; repeatable; all")
    chosen = dict.fromkeys(parser.parse_args(arguments).language or PROGRAMS)
    with tempfile.TemporaryDirectory(prefix="tarry-compat-rabbitmq-") as place:
        outcomes = _all(list(chosen), Path(place)) if FOUND else dict.fromkeys(chosen, f"left out: {WHY_NOT}")
    print()
    for name, outcome in outcomes.items():
        print(f"{PREFIX}{name}: {outcome}")
    return 1 if "FAILED" in outcomes.values() else 0


def _language(text: str) -> str:
    name = text.removeprefix(PREFIX)
    if name not in PROGRAMS:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {', '.join(PROGRAMS)}")
    return name


def _all(names: list[str], directory: Path) -> dict[str, str]:
    rabbit = RabbitServer(directory / "rabbit")
    try:
        with bridged(directory, rabbit) as place:
            wait_until(lambda: "connected to RabbitMQ" in place.bridge.said)
            return {name: _try(name, directory / name, rabbit.url) for name in names}
    finally:
        rabbit.kill()


def _try(name: str, directory: Path, url: str) -> str:
    print(f"== {PREFIX}{name}", flush=True)
    directory.mkdir()
    try:
        built = PROGRAMS[name](directory)
    except NoSourceError as error:
        return f"left out: {error}"
    told = {**os.environ, "AMQP_URL": url, "DELAYED_EXCHANGE": "orders.delayed", **built.environment}
    done = subprocess.run(built.command, cwd=built.place, env=told, timeout=PROGRAM_S_MAX, check=False)
    return "FAILED" if done.returncode else "ok"


if __name__ == "__main__":
    sys.exit(main())
