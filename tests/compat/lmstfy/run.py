"""Clients of lmstfy, unchanged, against Tarry: ``python -m tests.compat.lmstfy.run [--source DIR]``.

The Go client has a test suite of its own. It runs as it is, but for the file that starts Redis in a container. Its
source is a checkout of bitleak/lmstfy (``--source``), or the Go module where a proxy has it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.compat.lmstfy.serving import served

MODULE = "github.com/bitleak/lmstfy"
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
        binary = arguments.binary or _compile(arguments.source or _module(), Path(directory))
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


def _module() -> Path | None:
    """The module of the client, from the Go proxy."""
    command = ["go", "mod", "download", "-json", f"{MODULE}@latest"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tempfile.gettempdir())
    return Path(json.loads(done.stdout)["Dir"]) if done.returncode == 0 else None


def _compile(source: Path | None, directory: Path) -> Path | None:
    if source is None:
        return None
    copy = directory / "lmstfy"
    # The module's own files may be read-only.
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git"), copy_function=shutil.copyfile)
    shutil.copyfile(HERE / "go" / "setup_test.go", copy / "client" / "setup_test.go")
    binary = directory / "client.test"
    environment = {**os.environ, "GOFLAGS": "-mod=mod"}
    subprocess.run(["go", "test", "-c", "-o", binary, "./client"], cwd=copy, env=environment, check=True)
    return binary


if __name__ == "__main__":
    sys.exit(main())
