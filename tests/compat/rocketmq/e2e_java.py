"""The Java suites of RocketMQ's own end-to-end tests, for :mod:`tests.compat.rocketmq.e2e`: built, run, and read."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from .e2e_suites import Suite
from .programs import HERE, cache

RUN_S = 3600.0
PARALLEL = "junit.jupiter.execution.parallel"


def build(suite: Suite, checkout: Path) -> Path:
    """The directory with the classes of the suite and of what it needs; built where either has changed."""
    project, sources = HERE / suite.project, checkout / suite.sources
    files = [path for place in (project, sources / "src") for path in sorted(place.rglob("*")) if path.is_file()]
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
    directory = cache() / suite.project
    built = directory / "built"
    if not built.exists() or built.read_text() != digest:
        shutil.copytree(project, directory, dirs_exist_ok=True)
        command = ["mvn", "-q", "-B", "test-compile", "dependency:copy-dependencies"]
        command += ["-DoutputDirectory=target/lib", f"-De2e={sources}"]
        subprocess.run(command, cwd=directory, check=True, timeout=RUN_S, stdout=sys.stderr, stdin=subprocess.DEVNULL)
        built.write_text(digest)
    return directory


def run(
    suite: Suite, checkout: Path, addresses: Mapping[str, str], directory: Path, tests: Sequence[str], jobs: int
) -> dict[str, str]:
    """Run these tests of a suite, or all: by name why each failed, which is empty where it passed.

    Args:
        addresses: system properties that say where the server is, and what its cluster is called.
        directory: what the tests print is there then.
        jobs: tests at a time.
    """
    directory.mkdir(parents=True, exist_ok=True)
    target, sources = build(suite, checkout) / "target", checkout / suite.sources
    first = [str(path) for path in target.glob(f"lib/{suite.first}.jar")] if suite.first != "*" else []
    classes = ":".join([*map(str, [target / "test-classes", target / "classes"]), *first, f"{target}/lib/*"])
    settings = {
        f"{PARALLEL}.enabled": "true",
        f"{PARALLEL}.mode.default": "same_thread" if suite.shared else "concurrent",
        f"{PARALLEL}.mode.classes.default": "concurrent",
        f"{PARALLEL}.config.strategy": "fixed",
        f"{PARALLEL}.config.fixed.parallelism": str(jobs),
    }
    command = ["java", "-Xmx1g", f"-Duser.home={directory}", *(f"-D{n}={value}" for n, value in addresses.items())]
    command += ["-cp", classes, "org.junit.platform.console.ConsoleLauncher", "--disable-banner", "--details=none"]
    command += [f"--reports-dir={directory}", *(f"--config={name}={value}" for name, value in settings.items())]
    command += [word for test in tests for word in ("-m" if "#" in test else "-c", _full(test, sources))]
    command += [] if tests else [f"--select-package={suite.package}"]
    with (directory / "tests.log").open("wb") as log:
        # Its settings are files below the directory that it is started in.
        subprocess.run(
            command, cwd=sources, env={**os.environ, "cluster": addresses["cluster"]}, timeout=RUN_S, stdout=log,
            stderr=log, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    return outcomes(directory)


def outcomes(directory: Path) -> dict[str, str]:
    """What the reports there say, as :func:`run` does."""
    found: dict[str, str] = {}
    for name, text in _cases(directory):
        # Of a test that runs with several values, which share its name, all have to pass.
        found[name] = found.get(name) or text
    return found


def has(test: str, sources: Path) -> bool:
    """Whether the suite has this class."""
    return any((sources / "src" / "test" / "java").rglob(f"{test.partition('#')[0]}.java"))


def _full(test: str, sources: Path) -> str:
    """A class, or a method of one, with its package."""
    name, _, method = test.partition("#")
    [path] = (sources / "src" / "test" / "java").rglob(f"{name}.java")
    words = ".".join(path.relative_to(sources / "src" / "test" / "java").with_suffix("").parts)
    return f"{words}#{method}" if method else words


def _cases(directory: Path) -> Iterator[tuple[str, str]]:
    for report in directory.glob("TEST-*.xml"):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name', '').partition('(')[0]}"
            wrong = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
            if case.find("skipped") is None:
                text = "" if wrong is None else (wrong.get("message") or wrong.get("type") or "failed")
                yield name, text.strip().partition("\n")[0][:300]
