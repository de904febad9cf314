"""``make dist-test``: the built wheels, in fresh environments without this checkout.

Each distribution is built twice, and has to be the same to the byte; no file is in two of them. Each Python that is
on PATH or in pyenv gets environments with the wheels and what they need from the index: one with the broker, which is
started by its command, and two with the client alone, with pyarrow and without. One program of a user runs in all
three: it sends, consumes and cancels. In the first a month passes in a test, and the demo runs in its small form, too.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tests.ports import free_port
from tests.pythons import found
from tests.sources import ROOT
from tests.waiting import wait_until

PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
PLACES = (".", *sorted(f"./packages/{path.name}" for path in (ROOT / "packages").iterdir() if path.is_dir()))
CLIENT_BYTES_MAX = 5_000_000
"""Of ``tarry-client`` and all that it needs, installed, without pyarrow."""
PROGRAM = """
import sys
from tarry import Client

client = Client(sys.argv[1])
client.set_group("orders", "billing", tries=5)
kept, gone = (client.schedule("orders", body, delay="1s") for body in (b"kept", b"gone"))
assert str(client.cancel(gone)) == "done"
for message in client.consume("orders", group="billing"):
    assert message.body == b"kept", message.body
    message.ack()
    break
client.close()
print("consumed")
"""
TEST = """
def test_a_month(tarry_broker):
    tarry_broker.schedule("orders", b"later", delay="30d")
    tarry_broker.advance("30d")
    assert tarry_broker.receive("orders", "billing").column("body").to_pylist() == [b"later"]
"""


def main(arguments: list[str] | None = None) -> int:
    """Build and try; 0: all was as expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.wheels.run", description=__doc__)
    parser.add_argument(
        "--python", action="append", help="repeatable; those of " + ", ".join(PYTHONS) + " on PATH or in pyenv"
    )
    parser.add_argument("--no-demo", action="store_true", help="without the demo, which needs PySpark: 450 MB")
    given = parser.parse_args(arguments)
    here = {name: found(name) for name in PYTHONS}
    tried = given.python or [path for path in here.values() if path is not None]
    with tempfile.TemporaryDirectory() as directory:
        wheels = _built(Path(directory) / "first")
        differing = {name for name, digest in _built(Path(directory) / "second").items() if wheels[name] != digest}
        print(f"{len(wheels)} wheels, {len(differing)} of which are not the same when built again: {sorted(differing)}")
        twice = _in_two(Path(directory) / "first")
        print(f"{len(twice)} files are in two wheels: {sorted(twice)[:9]}")
        failed = [python for python in tried if not _tried(python, Path(directory), with_demo=not given.no_demo)]
    absent = [] if given.python else [name for name, path in here.items() if path is None]
    for name in absent:
        print(f"{name}: skipped, as it is neither on PATH nor in pyenv; another place: ARGS='--python /path/to/{name}'")
    print(f"tried with {', '.join(tried)}; failed: {', '.join(failed) or 'none'}")
    return 1 if failed or differing or twice or not tried else 0


def _built(where: Path) -> dict[str, str]:
    """Build the wheels; their digests by name."""
    options = (
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--no-cache-dir",
        "--wheel-dir",
        str(where),
    )
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, *PLACES], cwd=ROOT, check=True)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(where.iterdir())}


def _in_two(wheels: Path) -> set[str]:
    counts = Counter(name for path in wheels.iterdir() for name in ZipFile(path).namelist())
    return {name for name, count in counts.items() if count > 1}


def _tried(python: str, directory: Path, *, with_demo: bool) -> bool:
    began_s = time.monotonic()
    wheels, place = directory / "first", directory / f"env-{Path(python).name}"
    broker, client = Environment(python, place / "broker", wheels), Environment(python, place / "client", wheels)
    needed = ["tarry[http]", "tarry-demo"] if with_demo else ["tarry[http]"]
    if not broker.install(*needed, "pytest") or not client.install("tarry-client"):
        print(f"{python}: cannot be installed")
        return False
    small_bytes = client.size_bytes()
    works = {
        "client": small_bytes <= CLIENT_BYTES_MAX and not client.has("pyarrow"),
        "brokers": _serves(broker, client),
        "fixture": _passes(broker),
        "demo": not with_demo or broker.run("tarry", "demo", "--small", "--out", "demo-out").returncode == 0,
    }
    version = broker.run("tarry", "--version", capture_output=True, text=True).stdout.strip()
    native_bytes, arrow_bytes = client.size_bytes(), client.size_bytes("pyarrow")
    print(
        f"{python}: {version}; the client takes {small_bytes / 1e6:.2f} MB, with the native link "
        f"{native_bytes / 1e6:.0f} MB, {arrow_bytes / 1e6:.0f} of them pyarrow's; "
        f"{time.monotonic() - began_s:.0f} s, {works=}",
        flush=True,
    )
    shutil.rmtree(place)
    return all(works.values())


class Environment:
    """A fresh environment of a Python, with a directory to work in."""

    def __init__(self, python: str, place: Path, wheels: Path) -> None:
        subprocess.run([python, "-m", "venv", place], check=True)
        self.place = place
        self._wheels = wheels
        [self._packages] = place.glob("lib/python3*/site-packages")
        self._own = set(self._packages.iterdir())
        """What each environment has: pip."""

    def install(self, *requirements: str) -> bool:
        """Install wheels, and what they need from the index; return whether that could be done."""
        options = ("--quiet", "--disable-pip-version-check", "--find-links", str(self._wheels))
        return self.run("python", "-m", "pip", "install", *options, *requirements).returncode == 0

    def run(self, program: str, *arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment. Nothing of this checkout, and no token of a user, is seen by it."""
        return subprocess.run(
            [self.place / "bin" / program, *arguments], cwd=self.place, env=self.variables(), check=False, **how
        )

    def variables(self) -> dict[str, str]:
        """Return the variables of its programs."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON", "TARRY"))}
        return {**kept, "PATH": f"{self.place / 'bin'}{os.pathsep}{kept.get('PATH', '')}"}

    def has(self, package: str) -> bool:
        """Return whether something is installed in it."""
        return (self._packages / package).exists()

    def size_bytes(self, prefix: str = "") -> int:
        """Return the bytes that are installed, compiled modules included; ``prefix``: of what is named so."""
        tops = [path for path in self._packages.iterdir() if path not in self._own and path.name.startswith(prefix)]
        files = (path for top in tops for path in (top.rglob("*") if top.is_dir() else [top]))
        return sum(path.stat().st_size for path in files if path.is_file())


def _serves(broker: Environment, client: Environment) -> bool:
    """Return whether the program of a user does its work in each environment, by each way that there is."""
    native, http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    options = ("--data", "data", "--flight", native, "--http", http)
    without = ("--pipeline", "off", "--set", "disk_free_bytes_min=0")
    command = [broker.place / "bin/tarry", "serve", *options, *without]
    serving = subprocess.Popen(command, cwd=broker.place, env=broker.variables())
    try:
        wait_until(lambda: broker.run("tarry", "status", "--endpoint", native, capture_output=True).returncode == 0)
        tries = ((client, f"http://{http}"), (broker, f"http://{http}"), (broker, native))
        if not all(_does(*each) for each in tries) or _does(client, native, is_told=False):
            return False
        return client.install("tarry-client[native]") and _does(client, native) and _does(client, f"http://{http}")
    finally:
        serving.terminate()
        serving.wait(60)


def _does(environment: Environment, address: str, *, is_told: bool = True) -> bool:
    (environment.place / "program.py").write_text(PROGRAM)
    how: dict[str, Any] = {} if is_told else {"capture_output": True}
    return environment.run("python", "program.py", address, timeout=60, **how).returncode == 0


def _passes(environment: Environment) -> bool:
    (environment.place / "test_month.py").write_text(TEST)
    return environment.run("pytest", "-q", "test_month.py").returncode == 0


if __name__ == "__main__":
    sys.exit(main())
