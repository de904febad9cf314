"""The first steps of docs/http.md, tried by curl itself."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.http.rest import Rest

PAGE = (Path(__file__).parents[2] / "docs/http.md").read_text()
STEPS = PAGE.partition("## First steps")[2].partition("## Paths")[0]
LINES = re.findall(r"^curl .*?(?=\s+#|$)", STEPS, re.MULTILINE)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_the_curl_lines_work(rest: Rest) -> None:
    answers = [_run(line, rest.front.address) for line in LINES]
    outcomes = [answer.get("outcome") for answer in answers]
    assert outcomes == ["scheduled", "done", "done", "scheduled", None]
    assert [message["body"] for message in answers[-1]["messages"]] == ["now"]


def _run(line: str, address: str) -> dict[str, object]:
    command = shlex.split(line.replace("localhost:7777", address))
    done = subprocess.run([*command, "--silent", "--show-error", "--fail-with-body"], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr + done.stdout
    answer: dict[str, object] = json.loads(done.stdout)
    return answer
