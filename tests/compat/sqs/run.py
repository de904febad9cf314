"""AWS's SDKs, moto's tests of SQS, and Celery, unchanged, against Tarry.

``python -m tests.compat.sqs.run [--language NAME]``.
All that a program is told is the endpoint, by ``AWS_ENDPOINT_URL_SQS``, and what it signs with. What is not installed
is left out, and said so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.compat.sources import NoSourceError

from .programs import PROGRAMS, Program
from .serving import served

PREFIX = "sqs-"
TESTS_S_MAX = 600


def main(arguments: list[str] | None = None) -> int:
    """Try programs; 0: none failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.sqs.run", description=__doc__)
    parser.add_argument("--language", action="append", type=_language, help=f"{', '.join(PROGRAMS)}; repeatable; all")
    chosen = parser.parse_args(arguments).language or PROGRAMS
    outcomes = {name: _try(name, PROGRAMS[name]) for name in dict.fromkeys(chosen)}
    print()
    for name, outcome in outcomes.items():
        print(f"{PREFIX}{name}: {outcome}")
    return 1 if "FAILED" in outcomes.values() else 0


def _language(text: str) -> str:
    name = text.removeprefix(PREFIX)
    if name not in PROGRAMS:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {', '.join(PROGRAMS)}")
    return name


def _try(name: str, program: Program) -> str:
    print(f"== {PREFIX}{name}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tarry-compat-sqs-") as place:
        directory = Path(place)
        try:
            built = program.build(directory)
        except NoSourceError as error:
            return f"left out: {error}"
        with served(directory / "data", strict=program.strict, identities=program.identities) as environment:
            told = {**os.environ, **environment, **built.environment(environment)}
            done = subprocess.run(built.command, cwd=built.place, env=told, timeout=TESTS_S_MAX, check=False)
    return "FAILED" if done.returncode else "ok"


if __name__ == "__main__":
    sys.exit(main())
