"""Clients of lmstfy, unchanged, against Tarry: ``python -m tests.compat.lmstfy.run [--language NAME] [--sources DIR]``.

Where a client has a test suite of its own, that runs as it is, but for the file that says where the server is. For the
others a program here uses all that they can do. ``--original`` runs the same against lmstfy itself on Redis.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.lmstfy.client import Place
from benchmarks.peers.lmstfy.server import lmstfy_server

from tests.compat.sources import NoSourceError

from .programs import LANGUAGES, command_of
from .serving import served

PREFIX = "lmstfy-"
SOURCES = "LMSTFY_CLIENTS"
"""An environment variable: as ``--sources``."""
NAMESPACE = "client-ns"
TESTS_S_MAX = 600


def main(arguments: list[str] | None = None) -> int:
    """Try clients; 0: none failed."""
    options = _options(arguments)
    outcomes = {name: _try(name, options) for name in dict.fromkeys(options.language or LANGUAGES)}
    print()
    for name, outcome in outcomes.items():
        print(f"{PREFIX}{name}: {outcome}")
    return 1 if "FAILED" in outcomes.values() else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.compat.lmstfy.run", description=__doc__)
    parser.add_argument(
        "--language", action="append", type=_language, help=f"{', '.join(LANGUAGES)}; repeatable; all, where none is"
    )
    given = os.environ.get(SOURCES)
    parser.add_argument(
        "--sources",
        type=Path,
        default=Path(given) if given else None,
        metavar="DIRECTORY",
        help="with checkouts of the clients, under their repositories' names; else they are cloned",
    )
    parser.add_argument("--original", action="store_true", help="lmstfy itself, on Redis, from benchmarks.peers")
    return parser.parse_args(arguments)


def _language(text: str) -> str:
    name = text.removeprefix(PREFIX)
    if name not in LANGUAGES:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {', '.join(LANGUAGES)}")
    return name


def _try(language: str, options: argparse.Namespace) -> str:
    print(f"== {language}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tarry-compat-lmstfy-") as name:
        directory = Path(name)
        try:
            command = command_of(language, options.sources, directory)
        except NoSourceError as error:
            return f"left out: {error}"
        with _server(directory, original=options.original) as place:
            environment = {**os.environ, **place.environment, "LMSTFY_CLIENT_TEST_CONFIG": _rust_config(place)}
            own = directory / language
            where = own if own.is_dir() else directory
            done = subprocess.run(command, cwd=where, env=environment, timeout=TESTS_S_MAX, check=False)
    return "FAILED" if done.returncode else "ok"


def _rust_config(place: Place) -> str:
    """What the Rust client's tests read."""
    return json.dumps({**place._asdict(), "queue_suffix": "compat"})


@contextmanager
def _server(directory: Path, *, original: bool) -> Iterator[Place]:
    if original:
        with lmstfy_server() as theirs:
            yield theirs.place
    else:
        with served(directory / "data") as ours:
            yield Place(ours.host, ours.port, NAMESPACE, ours.token(NAMESPACE))


if __name__ == "__main__":
    sys.exit(main())
