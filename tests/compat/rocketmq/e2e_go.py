"""The Go part of RocketMQ's own end-to-end tests (golang/ of the checkout), for :mod:`tests.compat.rocketmq.e2e`.

They make their topics with mqadmin, a command that they look for beside their own directory: so they run in a copy,
with one beside it that is made of the same jars as the Java part's tools.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

ADMIN = """\
#!/bin/sh
# It waits a few seconds for an answer, which may be too short where much else runs; and its exit code is always 0.
for turn in 1 2 3 4 5; do
  {command} org.apache.rocketmq.tools.command.MQAdminStartup "$@" 2> "$0.$$"
  grep -q Exception "$0.$$" || exit 0
  cat "$0.$$" >&2
done
exit 1
"""


def run(
    sources: Path,
    jars: Sequence[Path],
    environment: dict[str, str],
    directory: Path,
    tests: Sequence[str],
    seconds: float,
) -> list[tuple[str, str]]:
    """Run the tests of ``sources``, all of them or those named; each with why it failed, which is empty where it
    passed. What they print is in ``directory`` then.

    Args:
        jars: what mqadmin is made of.
        environment: the addresses, by the names that the tests know.
    """
    place = directory / "go"
    shutil.copytree(sources, place / "golang")
    _make_admin(place / "rocketmq-admintools", jars)
    command = ["go", "test", "-json", "-count=1", "-p=1", "-parallel=2", "./mqgotest/..."]
    command += ["-run", f"^({'|'.join(tests)})$"] if tests else []
    variables = {**os.environ, **environment, "rocketmq.client.logRoot": str(place)}
    with (place / "tests.json").open("wb") as out, (place / "tests.log").open("wb") as err:
        subprocess.run(
            command, cwd=place / "golang", env=variables, timeout=seconds, stdout=out, stderr=err,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    return list(_outcomes((place / "tests.json").read_text().splitlines()))


def _make_admin(directory: Path, jars: Sequence[Path]) -> None:
    (directory / "bin").mkdir(parents=True)
    (directory / "conf").mkdir()
    (directory / "conf" / "logback_tools.xml").write_text("<configuration/>\n")
    words = ["java", "-XX:TieredStopAtLevel=1", f"-Drocketmq.home.dir={directory}", f"-Duser.home={directory}"]
    words += ["-cp", ":".join(map(str, jars))]
    (directory / "bin" / "mqadmin").write_text(ADMIN.format(command=shlex.join(words)))


def _outcomes(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Of what ``go test -json`` prints. A package that fails without a test that does counts as one: it does not
    compile, or a test has ended its process.
    """
    said: dict[tuple[str, str], list[str]] = {}
    failed: set[str] = set()
    for line in lines:
        event = json.loads(line) if line.startswith("{") else {}
        package, test = event.get("Package", ""), event.get("Test", "")
        output = said.setdefault((package, test), [])
        match event.get("Action"):
            case "output":
                output.append(event["Output"])
            case "pass" if test:
                yield f"Go: {test}", ""
            case "fail" if test:
                failed.add(package)
                yield f"Go: {test}", _last(output)
            case "fail" if package not in failed:
                lines = [line for (of, _), lines in said.items() if of == package for line in lines]
                yield f"Go: {package.rpartition('/')[2]}", _last(lines[: -len(output) or None])


def _last(output: Sequence[str]) -> str:
    lines = [line.strip() for line in output if line.strip() and not line.lstrip().startswith(("---", "===", "FAIL"))]
    return lines[-1][:300] if lines else "failed"
