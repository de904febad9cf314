"""The tests of Spark with each PySpark that ``pyproject.toml`` allows: ``python -m tests.spark.matrix``, which is
``make spark-matrix``. ``--only 4.3`` runs one; what follows ``--`` is pytest's, instead of the core of ``tests/spark``.

Each version is installed once, alone, into an environment of its own in the user's cache, and put before all that is
installed here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.sources import ROOT, SOURCE_ROOTS

VERSIONS = ("4.2.0", "4.2.*", "4.3.*")
"""The oldest that is allowed, which is also the newest that Delta's package on PyPI takes, and each minor's newest."""
TESTS = ("tests/spark", "tests/unit/test_spark_parts.py", "--part", "core")


def python_of(version: str) -> Path:
    """The interpreter of an environment with this PySpark, made if need be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tarry"
    place = cache / f"pyspark-{version.replace('.*', '')}-py{sysconfig.get_python_version()}"
    if not place.exists():
        print(f"installing PySpark {version} into {place}", flush=True)
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f"{place.name}-", dir=cache))
        try:
            subprocess.run([sys.executable, "-m", "venv", fresh], check=True)
            subprocess.run(
                [fresh / "bin" / "python", "-m", "pip", "install", "--quiet", f"pyspark=={version}"], check=True
            )
            fresh.rename(place)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    # All else is what is installed here; Tarry is the working tree.
    own = next(place.glob("lib/python*/site-packages"))
    (own / "tarry-matrix.pth").write_text("\n".join([*map(str, SOURCE_ROOTS), sysconfig.get_path("purelib"), ""]))
    return place / "bin" / "python"


def run(version: str, arguments: Sequence[str]) -> int:
    """Pytest's exit code with one version."""
    python = python_of(version)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "SPARK_HOME")}
    found = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    print(f"-- PySpark {found} ({version})", flush=True)
    return subprocess.run([python, "-m", "pytest", *arguments], cwd=ROOT, env=environment, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all versions, or one; 1 where a test failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.matrix", description=__doc__)
    parser.add_argument("--only", choices=[version.removesuffix(".*") for version in VERSIONS])
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, behind --")
    options = parser.parse_args(arguments)
    chosen = [version for version in VERSIONS if options.only in (None, version.removesuffix(".*"))]
    failed = [version for version in chosen if run(version, options.pytest or TESTS)]
    print(f"failed with PySpark {', '.join(failed)}" if failed else f"PySpark {', '.join(chosen)}: passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
