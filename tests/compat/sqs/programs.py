"""How each program for SQS and EventBridge Scheduler is built and run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.compat.sources import NoSourceError

from .moto_differences import SUITES, Suite

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BUILD_S_MAX = 900
MOTO, FREEZEGUN, CURL = "moto==5.2.5", "freezegun==1.5.5", "pycurl>=7.45,<8"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")


def _nothing_more(_: Mapping[str, str]) -> dict[str, str]:
    return {}


class Built(NamedTuple):
    """A program that is ready to run."""

    command: list[str]
    place: Path
    environment: Callable[[Mapping[str, str]], dict[str, str]] = _nothing_more
    """What it is told beside what SDKs read, of which it is made."""


class Program(NamedTuple):
    """How a program is tried."""

    build: Callable[[Path], Built]
    """Into a directory. Raises NoSourceError."""
    strict: bool = False
    identities: bool = True


def _python(_: Path) -> Built:
    return Built([sys.executable, str(HERE / "python" / "main.py")], ROOT)


def _celery(directory: Path) -> Built:
    """With curl, by which kombu's transport asks for messages."""
    library = directory / "library"
    _run([*PIP, "install", "--no-deps", "--only-binary", ":all:", "--target", str(library), CURL], directory)
    command = [sys.executable, "-m", "tests.compat.sqs.celery_app.main"]
    return Built(command, ROOT, lambda _: {"PYTHONPATH": str(library)})


def _node(program: str) -> Callable[[Path], Built]:
    def build(directory: Path) -> Built:
        place = _copy("node", directory, "npm")
        _run(["npm", "ci", "--no-audit", "--no-fund"], place)
        return Built(["node", program], place)

    return build


def _go(package: str) -> Callable[[Path], Built]:
    def build(directory: Path) -> Built:
        place = _copy("go", directory, "go")
        _run(["go", "build", "-o", "program", package], place)
        return Built([str(place / "program")], place)

    return build


def _java(program: str) -> Callable[[Path], Built]:
    def build(directory: Path) -> Built:
        place = _copy("java", directory, "mvn")
        _run(["mvn", "-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"], place)
        return Built(["java", "-XX:+UseSerialGC", "-cp", "target/classes:target/lib/*", program], place)

    return build


def _moto(suite: Suite) -> Callable[[Path], Built]:
    """Moto's own tests, from its source distribution; what is known to differ has to fail."""

    def build(directory: Path) -> Built:
        fetched, library = directory / "fetched", directory / "library"
        _run([*PIP, "download", "--no-deps", "--no-binary", ":all:", "-d", str(fetched), MOTO], directory)
        _run([*PIP, "install", "--no-deps", "--target", str(library), FREEZEGUN], directory)
        [archive] = fetched.glob("moto-*.tar.gz")
        with tarfile.open(archive) as source:
            source.extractall(directory / "moto", filter="data")
        [place] = (directory / "moto").iterdir()
        options = ["-p", "tarry_moto", "-p", "no:cacheprovider", "-q", "-W", "ignore", "--tb=short", "--color=no"]

        def environment(told: Mapping[str, str]) -> dict[str, str]:
            url = told["AWS_ENDPOINT_URL_SQS"]
            for tests in suite.files:
                text = (place / tests).read_text()
                for former, (text_now, _) in suite.replaced.items():
                    text = text.replace(former, text_now.format(url=url))
                (place / tests).write_text(text)
            return {
                "TEST_SERVER_MODE": "true",
                "TEST_SERVER_MODE_ENDPOINT": url,
                "MOTO_DIFFERENCES": json.dumps(suite.differences),
                "MOTO_QUEUES": json.dumps(suite.queues),
                "PYTHONPATH": f"{HERE / 'moto_tests'}:{library}",
            }

        return Built([sys.executable, "-m", "pytest", *options, *suite.files], place, environment)

    return build


def _copy(name: str, directory: Path, tool: str) -> Path:
    if shutil.which(tool) is None:
        raise NoSourceError(f"{tool} is not installed")
    shutil.copytree(HERE / name, directory / name)
    return directory / name


def _run(command: list[str], place: Path) -> None:
    done = subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=BUILD_S_MAX, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {(done.stdout + done.stderr)[-3000:]}")


PROGRAMS: Mapping[str, Program] = {
    "python": Program(_python),
    "node": Program(_node("main.mjs")),
    "go": Program(_go(".")),
    "java": Program(_java("compat.Main")),
    "celery": Program(_celery),
    "moto": Program(_moto(SUITES["sqs"]), strict=True, identities=False),
    "scheduler-node": Program(_node("scheduler.mjs")),
    "scheduler-go": Program(_go("./scheduler")),
    "scheduler-java": Program(_java("compat.Schedules")),
    "scheduler-moto": Program(_moto(SUITES["scheduler"]), strict=True, identities=False),
}
