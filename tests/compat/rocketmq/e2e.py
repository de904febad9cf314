"""RocketMQ's own end-to-end tests, java/e2e and golang of a checkout of apache/rocketmq-e2e, against Tarry:
``python -m tests.compat.rocketmq.run --language e2e CHECKOUT [--part java|go] [--test CLASS[#METHOD]]``.

They make their topics and groups through a name server, which is Tarry's front for classic clients. Those that are in
:data:`EXPECTED` fail, for the reasons given there; the command fails when another one does, or one of those passes that
is not in :data:`SOMETIMES`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from . import e2e_go
from .programs import HERE, cache
from .servers import tarry_server

CLUSTER = "DefaultCluster"
"""What the front for classic clients calls it."""
PACKAGES = "org.apache.rocketmq.broker"
EXPECTED = {
    "DelayMessageTest.testDelayTime24hAfter": "delays of more than a day are taken",
    "SimpleParamTest.testNormal_simple_receive_maxsize_sync": "who asks for 50 messages gets 50, not 32",
    "SimpleParamTest.test_waitAckException_reReceive_ack": "a late acknowledgement counts if nobody has the message",
    "SimpleOrderParamTest.testFIFO_simple_receive_multi_nack": "what was acknowledged does not come again",
}
"""Tests that do not pass, and why; docs/rocketmq.md lists them, too."""
SOMETIMES = {"SimpleParamTest.test_waitAckException_reReceive_ack"}
"""Those of them that may pass: here, where one of the broker's checkpoints comes in the second that it waits."""
PARTS = {"java": "mvn", "go": "go"}
"""The parts, and what each needs."""
SETTINGS = ("--set", "rocketmq_create_topics=off")
"""Some tests want a missing topic refused when a client starts."""
RUN_S = 3600.0
AGAIN_JOBS = 2


class Outcome(NamedTuple):
    """What became of one test. ``text``: the first line of why it failed; empty: it passed."""

    name: str
    text: str

    @property
    def mark(self) -> str:
        """In one word."""
        if not self.text:
            return "ok" if self.name not in EXPECTED or self.name in SOMETIMES else "PASSED"
        return "FAILED" if self.name not in EXPECTED else "expected"


def main(arguments: list[str]) -> int:
    """Run the tests and tell how they ended; 0: as expected."""
    options = _options(arguments)
    if options.checkout is None:
        print("name a checkout of apache/rocketmq-e2e, or set ROCKETMQ_E2E to it", file=sys.stderr)
        return 2
    sources = options.checkout.resolve() / "java" / "e2e"
    parts = options.part or [name for name, tool in PARTS.items() if shutil.which(tool)]
    directory = cache() / "runs" / f"e2e-{time.strftime('%Y%m%d-%H%M%S')}"
    build = _build(sources)  # Go's tests need the tools that it brings, too
    outcomes: list[Outcome] = []
    with tarry_server(directory, *SETTINGS) as server:
        if "java" in parts:
            addresses = {"endPoint": server.endpoint, "namesrvAddr": str(server.classic_endpoint)}
            _run(build, sources, addresses, directory, options.test or (), options.jobs)
            found = {outcome.name: outcome for outcome in _outcomes(directory)}
            if again := [name.replace(".", "#") for name, outcome in found.items() if outcome.mark == "FAILED"]:
                # Many run at a time, and the client waits for 3 s; where much else runs, that may be the reason.
                print(f"{len(again)} failed; they run once more, fewer at a time")
                _run(build, sources, addresses, directory / "again", again, AGAIN_JOBS)
                found |= {outcome.name: outcome for outcome in _outcomes(directory / "again")}
            outcomes += found.values()
        if "go" in parts:
            jars = sorted((build / "target" / "lib").glob("*.jar"))
            environment = {"GRPC_ENDPOINT": server.endpoint, "NAMESERVER": str(server.classic_endpoint)}
            environment["CLUSTER_NAME"] = CLUSTER
            golang = options.checkout.resolve() / "golang"
            results = e2e_go.run(golang, jars, environment, directory, options.test or (), RUN_S)
            outcomes += [Outcome(*each) for each in results]
    for outcome in outcomes:
        if outcome.mark != "ok":
            print(f"{outcome.mark:9} {outcome.name}  {EXPECTED.get(outcome.name, outcome.text)}")
    marks = [outcome.mark for outcome in outcomes]
    print(f"{marks.count('ok')} of {len(marks)} passed; what they said: {directory}")
    return 0 if marks and {"FAILED", "PASSED"}.isdisjoint(marks) else 1


def _options(arguments: list[str]) -> argparse.Namespace:
    given = os.environ.get("ROCKETMQ_E2E")
    parser = argparse.ArgumentParser(prog="python -m tests.compat.rocketmq.run --language e2e", description=__doc__)
    parser.add_argument("checkout", type=Path, nargs="?", default=given and Path(given), help="or ROCKETMQ_E2E")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="repeatable; all whose tool is there")
    parser.add_argument("--test", action="append", metavar="CLASS[#METHOD]", help="repeatable; all; of Go, its name")
    parser.add_argument("--jobs", type=int, default=8, help="tests at a time, which mostly wait (%(default)s)")
    return parser.parse_args(arguments)


def _build(sources: Path) -> Path:
    """The directory with the classes of the suite and of what it needs; built where either has changed."""
    files = [path for place in (HERE / "e2e", sources / "src") for path in sorted(place.rglob("*")) if path.is_file()]
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
    directory = cache() / "e2e"
    built = directory / "built"
    if not built.exists() or built.read_text() != digest:
        shutil.copytree(HERE / "e2e", directory, dirs_exist_ok=True)
        command = ["mvn", "-q", "-B", "test-compile", "dependency:copy-dependencies"]
        command += ["-DoutputDirectory=target/lib", f"-De2e={sources}"]
        subprocess.run(command, cwd=directory, check=True, timeout=RUN_S, stdout=sys.stderr, stdin=subprocess.DEVNULL)
        built.write_text(digest)
    return directory


def _run(
    build: Path, sources: Path, addresses: dict[str, str], directory: Path, tests: Sequence[str], jobs: int
) -> None:
    """Run these tests, or all; what they are and how they ended is in ``directory`` then."""
    directory.mkdir(exist_ok=True)
    target = build / "target"
    # The client first: it has the protocol's classes in its own form, and the tools bring them in another.
    [client] = target.glob("lib/rocketmq-client-java-*.jar")
    classes = ":".join(map(str, [target / "test-classes", target / "classes", client, f"{target}/lib/*"]))
    parallel = "junit.jupiter.execution.parallel"
    settings = {
        f"{parallel}.enabled": "true", f"{parallel}.mode.default": "concurrent", f"{parallel}.config.strategy": "fixed",
        f"{parallel}.config.fixed.parallelism": str(jobs),
    }  # fmt: skip
    command = ["java", "-Xmx1g", f"-Duser.home={directory}", *(f"-D{n}={value}" for n, value in addresses.items())]
    command += ["-cp", classes, "org.junit.platform.console.ConsoleLauncher", "--disable-banner", "--details=none"]
    command += [f"--reports-dir={directory}", *(f"--config={name}={value}" for name, value in settings.items())]
    command += [word for test in tests for word in ("-m" if "#" in test else "-c", _full(test, sources))]
    command += [] if tests else [f"--select-package={PACKAGES}"]
    with (directory / "tests.log").open("wb") as log:
        # Its settings are files below the directory that it is started in.
        subprocess.run(
            command, cwd=sources, env={**os.environ, "cluster": CLUSTER}, timeout=RUN_S, stdout=log, stderr=log,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip


def _full(test: str, sources: Path) -> str:
    """A class, or a method of one, with its package."""
    name, _, method = test.partition("#")
    [path] = (sources / "src" / "test" / "java").rglob(f"{name}.java")
    words = ".".join(path.relative_to(sources / "src" / "test" / "java").with_suffix("").parts)
    return f"{words}#{method}" if method else words


def _outcomes(directory: Path) -> Iterator[Outcome]:
    for report in directory.glob("TEST-*.xml"):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name', '').partition('(')[0]}"
            wrong = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
            if case.find("skipped") is None:
                text = "" if wrong is None else (wrong.get("message") or wrong.get("type") or "failed")
                yield Outcome(name, text.strip().partition("\n")[0][:300])
