"""Runs one program with one scenario against one server, kills the server where the scenario wants it, and judges."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .programs import ROOT
from .scenarios import Scenario
from .servers import Server

UP_S, DOWN_S = 6.0, 2.0
"""Of a server that is restarted: how long it runs before it is killed, and is away."""


@dataclass(frozen=True)
class Result:
    """What became of a program."""

    language: str
    scenario: str
    outcome: str
    """ok, skipped, failed or timeout."""
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)
    reason: str = ""


def run(language: str, command: list[str], scenario: Scenario, server: Server, directory: Path) -> Result:
    """``directory`` keeps what the program prints, and its client's logs."""
    if scenario.restarts and not server.restarts:
        return Result(language, scenario.name, "skipped", 0.0, {"skipped": "this server is not ours to restart"})
    topic, group = _names(language, scenario)
    server.prepare(topic, group, scenario)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "logs").mkdir(exist_ok=True)
    endpoint = server.classic_endpoint if scenario.is_classic else server.endpoint
    if endpoint is None:
        return Result(language, scenario.name, "skipped", 0.0, {"skipped": "this server has no classic endpoint"})
    words = [*command, endpoint, scenario.name, topic, group, *scenario.extra]
    began = time.monotonic()
    with (directory / "stdout").open("wb") as stdout, (directory / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            words, cwd=directory, env=environment_of(directory), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            start_new_session=True,
        )  # fmt: skip
    code, away_ms = None, list[int]()
    try:
        deadline = began + scenario.limit_s
        if scenario.restarts:
            away_ms = _restart(server, process, directory / "stderr", scenario.restarts, deadline)
        code = process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    result = _judge(language, scenario, code, time.monotonic() - began, directory)
    if away_ms:
        result.facts["server_away_ms"] = away_ms
    return result


def _names(language: str, scenario: Scenario) -> tuple[str, str]:
    """A topic and a group that nobody has used."""
    topic = f"compat-{language}-{scenario.name}-{uuid.uuid4().hex[:8]}".replace(".", "-")
    return topic, f"{topic}-group"


def environment_of(directory: Path) -> dict[str, str]:
    """Of a program: nothing of Tarry's settings, and what it writes below its home stays in ``directory``."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("TARRY_")}
    paths = [str(ROOT), *filter(None, [found.get("PYTHONPATH")])]
    # All of these clients write logs below the home directory.
    return {**found, "HOME": str(directory), "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}


def _restart(server: Server, process: subprocess.Popen[bytes], stderr: Path, times: int, deadline: float) -> list[int]:
    """For how long the server was away each time."""
    found: list[int] = []
    while "ready" not in stderr.read_text(errors="replace").splitlines():
        if process.poll() is not None or time.monotonic() > deadline:
            return found
        time.sleep(0.1)
    for _ in range(times):
        time.sleep(UP_S)
        began = time.monotonic()
        server.kill()
        time.sleep(DOWN_S)
        server.start()
        found.append(round((time.monotonic() - began) * 1000))
    return found


def _judge(language: str, scenario: Scenario, code: int | None, seconds: float, directory: Path) -> Result:
    stdout = (directory / "stdout").read_text(errors="replace").strip()
    stderr = (directory / "stderr").read_text(errors="replace").strip()
    if code == 0:
        try:
            facts = json.loads(stdout.splitlines()[-1])
        except (IndexError, ValueError):
            reason = f"no JSON on stdout: {stdout[-500:]!r}"
            return Result(language, scenario.name, "failed", seconds, reason=reason)
        outcome = "skipped" if "skipped" in facts else "ok"
        return Result(language, scenario.name, outcome, seconds, facts)
    outcome = "timeout" if code is None else "failed"
    reason = f"exit code {code}: {stderr[-1500:]}" if code is not None else f"{scenario.limit_s:g} s: {stderr[-1500:]}"
    return Result(language, scenario.name, outcome, seconds, reason=reason)
