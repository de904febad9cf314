"""RocketMQ's own end-to-end tests, of apache/rocketmq-e2e, against Tarry:
``python -m tests.compat.rocketmq.run --language e2e [CHECKOUT] [--part java|v4|spring|go] [--test CLASS[#METHOD]]``.

``java`` is java/e2e (v5's client), ``v4`` java/e2e-v4 (the classic client 4.9.3), ``spring`` java/e2e-spring, ``go``
golang/. They make their topics and groups through a name server, which is Tarry's front for classic clients. Tests that
fail are in :mod:`.e2e_suites`, with reasons; the command fails when another one does, or one of those passes.
``--original`` runs the same against RocketMQ itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.rocketmq.server import rocketmq_server

from tests.compat.sources import NoSourceError, clone

from . import e2e_go, e2e_java
from .e2e_suites import COMMIT, SUITES, URL
from .programs import cache
from .servers import tarry_server

CHECKOUT = "ROCKETMQ_E2E"
"""An environment variable: a checkout of the tests."""
ORIGINAL = {"enablePropertyFilter": "true", "autoCreateSubscriptionGroup": "true"}
"""Settings of the original's broker: the tests of classic clients do not make their groups."""
INSTEAD = f"the path of a checkout, as an argument or in {CHECKOUT}"
CLUSTER = "DefaultCluster"
"""What both call it where no setting says otherwise."""
AGAIN_JOBS = 2


class Place(NamedTuple):
    """Where the server is, and what its cluster is called."""

    endpoint: str
    name_server: str
    cluster: str


class Outcome(NamedTuple):
    """What became of one test. ``text``: the first line of why it failed; empty: it passed."""

    part: str
    name: str
    text: str
    known: str
    """Why it has to fail; empty: it has to pass."""
    may_pass: bool

    @property
    def mark(self) -> str:
        """In one word."""
        if not self.text:
            return "ok" if not self.known or self.may_pass else "PASSED"
        return "expected" if self.known else "FAILED"


def main(arguments: list[str]) -> int:
    """Run the tests and tell how they ended; 0: as expected, or there is no source of them."""
    options = _options(arguments)
    directory = cache() / "runs" / f"e2e-{time.strftime('%Y%m%d-%H%M%S')}"
    missing = {part: suite.tool for part, suite in SUITES.items() if shutil.which(suite.tool) is None}
    parts = [part for part in options.part or SUITES if part not in missing]
    for part in set(options.part or SUITES) & set(missing):
        print(f"e2e, {part}: left out: {missing[part]} is not installed", file=sys.stderr)
    if not parts:
        return 0
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="tarry-e2e-") as fresh:
        try:
            checkout = options.checkout or clone(URL, COMMIT, Path(fresh) / "rocketmq-e2e", INSTEAD)
        except NoSourceError as error:
            print(f"e2e: left out: {error}", file=sys.stderr)
            return 0
        for part in parts:
            # Of its own: what one part leaves behind is no part of another.
            with _server(directory / part, SUITES[part].settings, original=options.original) as place:
                outcomes += _run(part, checkout, place, directory / part, options)
    for outcome in outcomes:
        if outcome.mark != "ok":
            print(f"{outcome.mark:9} {outcome.part}: {outcome.name}  {outcome.known or outcome.text}")
    for part in parts:
        marks = [outcome.mark for outcome in outcomes if outcome.part == part]
        print(f"{part}: {marks.count('ok')} of {len(marks)} passed")
    print(f"what they said: {directory}")
    wrong = {"FAILED", "PASSED"} & {outcome.mark for outcome in outcomes}
    return 1 if wrong or not outcomes else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    given = os.environ.get(CHECKOUT)
    parser = argparse.ArgumentParser(prog="python -m tests.compat.rocketmq.run --language e2e", description=__doc__)
    parser.add_argument(
        "checkout", type=Path, nargs="?", default=given and Path(given), help=f"or {CHECKOUT}; else it is cloned"
    )
    parser.add_argument("--part", action="append", choices=list(SUITES), help="repeatable; all whose tool is there")
    parser.add_argument("--test", action="append", metavar="CLASS[#METHOD]", help="repeatable; all; of Go, its name")
    parser.add_argument("--jobs", type=int, default=8, help="tests at a time, which mostly wait (%(default)s)")
    parser.add_argument("--original", action="store_true", help="RocketMQ itself, from benchmarks.peers")
    options = parser.parse_args(arguments)
    if options.checkout is not None:
        options.checkout = options.checkout.resolve()
        if not (options.checkout / SUITES["java"].sources).is_dir():
            parser.error(f"{options.checkout} is no checkout of {URL}: it has no {SUITES['java'].sources}")
    return options


@contextmanager
def _server(directory: Path, settings: Sequence[str], *, original: bool) -> Iterator[Place]:
    if original:
        with rocketmq_server(broker=ORIGINAL) as theirs:
            yield Place(theirs.endpoint, theirs.name_server, CLUSTER)
    else:
        with tarry_server(directory, *settings) as ours:
            yield Place(ours.endpoint, str(ours.classic_endpoint), CLUSTER)


def _run(part: str, checkout: Path, place: Place, directory: Path, options: argparse.Namespace) -> Iterator[Outcome]:
    suite = SUITES[part]
    if part == "go":
        found = _run_go(checkout, place, directory, options.test or ())
    else:
        found = _run_java(part, checkout, place, directory, options)
    known = suite.original if options.original else suite.known
    for name, text in found.items():
        yield Outcome(part, name, text, known.get(name, ""), name in suite.sometimes)


def _run_java(part: str, checkout: Path, place: Place, directory: Path, options: argparse.Namespace) -> dict[str, str]:
    suite = SUITES[part]
    tests = [test for test in options.test or () if e2e_java.has(test, checkout / suite.sources)]
    if options.test and not tests:
        return {}
    addresses = {"endPoint": place.endpoint, "namesrvAddr": place.name_server, "cluster": place.cluster}
    # Spring's names for the same.
    addresses |= {"rocketmq.name-server": place.name_server, "rocketmq.cluster": place.cluster}
    found = e2e_java.run(suite, checkout, addresses, directory, tests, options.jobs)
    failed = [name.replace(".", "#") for name, text in found.items() if text and name not in suite.known]
    if failed:
        # Many run at a time, and clients wait for seconds; where much else runs, that may be the reason.
        print(f"{part}: {len(failed)} failed; they run once more, fewer at a time", flush=True)
        found |= e2e_java.run(suite, checkout, addresses, directory / "again", failed, AGAIN_JOBS)
    return found


def _run_go(checkout: Path, place: Place, directory: Path, tests: list[str]) -> dict[str, str]:
    # They need the tools that the Java part brings.
    jars = sorted((e2e_java.build(SUITES["java"], checkout) / "target" / "lib").glob("*.jar"))
    environment = {"GRPC_ENDPOINT": place.endpoint, "NAMESERVER": place.name_server, "CLUSTER_NAME": place.cluster}
    sources = checkout / SUITES["go"].sources
    return dict(e2e_go.run(sources, jars, environment, directory, tests, e2e_java.RUN_S))
