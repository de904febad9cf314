"""Clients of lmstfy, unchanged, against Tarry: ``python -m tests.compat.lmstfy.run [--source DIR]``.

The Go client has a test suite of its own. It runs as it is, but for the file that starts Redis in a container. Its
source is a checkout of bitleak/lmstfy (``--source``, or LMSTFY_SOURCE), the Go module where a proxy has it, or a clone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peers.lmstfy.source import copy_of, go
from benchmarks.peers.lmstfy.source import source as found_source

from tests.compat.lmstfy.serving import served

HERE = Path(__file__).parent
TESTS_S = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, help="a checkout of bitleak/lmstfy")
    parser.add_argument("--binary", type=Path, help="the compiled tests, where they are there already")
    arguments = parser.parse_args()
    if shutil.which("go") is None and arguments.binary is None:
        print("go: left out, it is not installed")
        return 0
    with tempfile.TemporaryDirectory(prefix="tarry-compat-lmstfy-") as directory:
        binary = arguments.binary or _compile(arguments.source or found_source(Path(directory)), Path(directory))
        if binary is None:
            print("go: left out, there is no source of the client; allowed: --source CHECKOUT")
            return 0
        with served(Path(directory) / "data") as place:
            environment = {
                **os.environ,
                "LMSTFY_HOST": place.host,
                "LMSTFY_PORT": str(place.port),
                "LMSTFY_TOKEN": place.token("client-ns"),
            }
            return subprocess.run([binary, "-test.v"], env=environment, timeout=TESTS_S, check=False).returncode


def _compile(source: Path | None, directory: Path) -> Path | None:
    if source is None:
        return None
    copy = copy_of(source, directory / "lmstfy")
    shutil.copyfile(HERE / "go" / "setup_test.go", copy / "client" / "setup_test.go")
    binary = directory / "client.test"
    go("test", "-c", "-o", str(binary), "./client", directory=copy)
    return binary


if __name__ == "__main__":
    sys.exit(main())
