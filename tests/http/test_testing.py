"""A test clock by HTTP, and what docs/testing.md shows: its lines and programs, run against the command itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.http.rest import serving
from tests.ports import free_port

PAGE = (Path(__file__).parents[2] / "docs/testing.md").read_text()
PROGRAMS = {"js": ("node", "month.mjs"), "java": ("java", "Month.java")}
"""Those that begin at once: Go compiles for a minute."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


def test_a_month_passes(tmp_path: Path) -> None:
    with serving(tmp_path / "data", test_clock="2026-12-01T00:00:00Z") as rest:
        rest.schedule(delay="30d")
        assert rest.get("/v1/testing/clock").json()["now"] == "2026-12-01T00:00:00.000Z"
        answer = rest.post("/v1/testing/advance", {"to": "2026-12-30T23:59:59.999Z"})
        assert (answer.status_code, answer.json()["now"]) == (200, "2026-12-30T23:59:59.999Z")
        assert rest.receive(wait_ms=0) == []
        rest.post("/v1/testing/advance", {"by": "1ms"})
        assert [message["attempt"] for message in rest.receive(wait_ms=0)] == [1]
        assert rest.post("/v1/testing/advance", {"to": "2026-12-30T00:00:00Z"}).status_code == 400


def test_a_real_clock_stays(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as rest:
        for answer in (rest.get("/v1/testing/clock"), rest.post("/v1/testing/advance", {"by": "30d"})):
            assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
            assert "tarry serve --test-clock" in answer.json()["message"]


@pytest.mark.rest
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_the_page_works_as_it_is_pasted(tmp_path: Path) -> None:
    """In one shell: the line that serves, curl's lines, the commands, and each program whose language is here."""
    http, flight = free_port(), free_port()
    begin, *lines = blocks("sh")
    script = [
        "set -e",
        begin.strip() + "\n",
        "trap 'kill %1; wait %1' EXIT",
        *(line.replace("curl ", "curl -sS ") for line in lines),
    ]
    ran = [language for language, (program, _) in PROGRAMS.items() if shutil.which(program)]
    for language in ran:
        [source] = blocks(language)
        name = PROGRAMS[language][1]
        (tmp_path / name).write_text(source.replace("7777", str(http)))
        script.append(f"{PROGRAMS[language][0]} {name}")
    (tmp_path / "page.sh").write_text("\n".join(script).replace("7777", str(http)))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TARRY_FLIGHT": f"127.0.0.1:{flight}",
        "TARRY_ENDPOINT": f"127.0.0.1:{flight}",
        "TARRY_DISK_FREE_BYTES_MIN": "0",
    }
    done = subprocess.run(
        ["bash", "page.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown
    assert done.stdout.count("a month has passed") == len(ran), shown
    assert '"body":"unpaid?"' in done.stdout.replace(": ", ":"), shown
    assert "  paid?" in done.stdout, shown
    assert "TEST CLOCK" in shown
