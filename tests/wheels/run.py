"""``make dist-test``: the built wheels, in fresh environments without this checkout.

Each distribution is built twice, and has to be the same to the byte. Each Python that is there gets an environment with
the wheels and what they need from the index; there a broker is started by the command, and a program of a user sends to
it, consumes and cancels, and lets a month pass in a test.
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
from pathlib import Path

from tests.ports import free_port
from tests.sources import ROOT
from tests.waiting import wait_until

PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
PLACES = (".", *sorted(f"./packages/{path.name}" for path in (ROOT / "packages").iterdir() if path.is_dir()))
PROGRAM = """
import sys
from tarry import Client

client = Client(sys.argv[1])
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
        "--python", action="append", help="repeatable; those of " + ", ".join(PYTHONS) + " that are there"
    )
    given = parser.parse_args(arguments)
    found = given.python or [name for name in PYTHONS if _runs(name)]
    with tempfile.TemporaryDirectory() as directory:
        wheels = _built(Path(directory) / "first")
        differing = {name for name, digest in _built(Path(directory) / "second").items() if wheels[name] != digest}
        print(f"{len(wheels)} wheels, {len(differing)} of which are not the same when built again: {sorted(differing)}")
        failed = [python for python in found if not _tried(python, Path(directory))]
    print(f"tried with {', '.join(found)}; failed: {', '.join(failed) or 'none'}")
    return 1 if failed or differing or not found else 0


def _runs(python: str) -> bool:
    path = shutil.which(python)
    return path is not None and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0


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


def _tried(python: str, directory: Path) -> bool:
    began_s = time.monotonic()
    place = directory / Path(python).name
    subprocess.run([python, "-m", "venv", place], check=True)
    run = place / "bin"
    needed = ["tarry[http]", "pytest"]
    install = [run / "python", "-m", "pip", "install", "--quiet", "--find-links", directory / "first", *needed]
    if subprocess.run(install, check=False).returncode:
        print(f"{python}: cannot be installed")
        return False
    size_mb = sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) / 1e6
    version = subprocess.run([run / "tarry", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    works = _serves(run, place) and _tests(run, place)
    print(
        f"{python}: {version}, {size_mb:.0f} MB with pip and pytest, {time.monotonic() - began_s:.0f} s, {works=}",
        flush=True,
    )
    return works


def _serves(run: Path, place: Path) -> bool:
    endpoint = f"127.0.0.1:{free_port()}"
    options = (
        "--data",
        str(place / "data"),
        "--flight",
        endpoint,
        "--pipeline",
        "off",
        "--set",
        "disk_free_bytes_min=0",
    )
    broker = subprocess.Popen([run / "tarry", "serve", *options], cwd=place)
    try:
        (place / "program.py").write_text(PROGRAM)
        status = [run / "tarry", "status", "--endpoint", endpoint]
        wait_until(lambda: subprocess.run(status, capture_output=True, check=False).returncode == 0)
        done = subprocess.run([run / "python", "program.py", endpoint], cwd=place, timeout=60, check=False)
        return done.returncode == 0
    finally:
        broker.terminate()
        broker.wait(60)


def _tests(run: Path, place: Path) -> bool:
    (place / "test_month.py").write_text(TEST)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run([run / "pytest", "-q", "test_month.py"], cwd=place, env=clean, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
