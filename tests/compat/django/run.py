"""Suites of others for task backends of Django, against Tarry's: Django's own, and that of django-tasks-db.

``python -m tests.compat.django.run [--language NAME]``. ``DJANGO_PYTHON`` is the Python whose Django it is; without, it
is this one. A suite that its Django has not is left out, and said so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.contract.conftest import Served

from .suites import SUITES, Suite

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PREFIX = "django-"
PYTHON = os.environ.get("DJANGO_PYTHON", sys.executable)
TESTS_S_MAX = 600


def main(arguments: list[str] | None = None) -> int:
    """Run suites; 0: none failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.django.run", description=__doc__)
    parser.add_argument("--language", action="append", type=_language, help=f"{', '.join(SUITES)}; repeatable; all")
    chosen = parser.parse_args(arguments).language or SUITES
    outcomes = {name: _try(name, SUITES[name]) for name in dict.fromkeys(chosen)}
    print()
    for name, outcome in outcomes.items():
        print(f"{PREFIX}{name}: {outcome}")
    return 1 if "FAILED" in outcomes.values() else 0


def _language(text: str) -> str:
    name = text.removeprefix(PREFIX)
    if name not in SUITES:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {', '.join(SUITES)}")
    return name


def _try(name: str, suite: Suite) -> str:
    print(f"== {PREFIX}{name}", flush=True)
    looked = subprocess.run(
        [PYTHON, "-c", f"import django, {suite.needs}; print(django.__version__)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if looked.returncode:
        return f"left out: {PYTHON} has no {suite.needs}"
    distribution = suite.distribution.format(django=looked.stdout.strip())
    with tempfile.TemporaryDirectory(prefix="tarry-compat-django-") as place:
        directory = Path(place)
        _build(suite, distribution, directory)
        served = Served(directory / "data", retry_ms=1)
        try:
            return _run(suite, directory, served.address)
        finally:
            served.stop()


def _build(suite: Suite, distribution: str, directory: Path) -> None:
    """Put the suite's files, from its source distribution, into ``directory``."""
    fetched = directory / "fetched"
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "-q", "download", "--no-deps"]
    source_only = ["--no-binary", distribution.partition("==")[0]]
    subprocess.run([*pip, *source_only, "-d", str(fetched), distribution], check=True, stdin=subprocess.DEVNULL)
    [archive] = fetched.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(directory / "source", filter="data")
    [top] = (directory / "source").iterdir()
    replaced: set[str] = set()
    for former, (folder, name) in suite.copied.items():
        (directory / folder).mkdir(exist_ok=True)
        (directory / folder / "__init__.py").touch()
        text = (top / former).read_text()
        for text_former, (text_now, _) in suite.replaced.items():
            replaced.update([text_former] if text_former in text else [])
            text = text.replace(text_former, text_now)
        (directory / folder / name).write_text(text)
    assert not (strange := set(suite.replaced) - replaced), f"the suite has no {sorted(strange)}"


def _run(suite: Suite, directory: Path, address: str) -> str:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "suite.settings",
        # A test of an async function asks for results by the plain method, too.
        "DJANGO_ALLOW_ASYNC_UNSAFE": "true",
        "DATABASE": str(directory / "db.sqlite3"),
        "ENDPOINT": address,
        "DIFFERENCES": json.dumps(list(suite.differences)),
        "LEFT_OUT": json.dumps(list(suite.left_out)),
        "PYTHONPATH": os.pathsep.join(map(str, (HERE / "place", directory))),
    }
    done = subprocess.run(
        [PYTHON, "-m", "django", "test", "--noinput", *suite.labels],
        cwd=directory, env=environment, timeout=TESTS_S_MAX, check=False,
    )  # fmt: skip
    return "FAILED" if done.returncode else "ok"


if __name__ == "__main__":
    sys.exit(main())
