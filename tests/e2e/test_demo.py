"""The demo in small, with Spark and the kill; and interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tarry_demo.main import run

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_a_small_year(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    code = run(out, rows=5_000, seconds=25, json=True)
    report = json.loads(capsys.readouterr().out)
    account, facts = report["account"], report["facts"]
    assert report["wrong"] == []
    assert code == 0
    assert account["accepted"] == account["delivered"] == 5_000
    assert (account["lost"], account["early"], account["strange"]) == (0, 0, 0)
    assert 2_500 < facts["fired_from_store"] <= facts["store"]["rows"]
    assert facts["kill"]["processes"] > 1
    assert facts["kill"]["left"] == facts["left_at_end"] == []
    assert facts["kill"]["outage"]["next_hand_out_ms"] is not None
    audit = report["audit"]
    assert (audit["error"], audit["failures"]) == (None, {})
    for name in ("accepted", "delivered", "lost", "early", "duplicated"):
        assert audit["counts"][name] == account[name]
    assert audit["counts"]["unanswered_delivered"] == account["unanswered"]
    assert audit["verdict"][0] in (out / "audit.html").read_text()
    assert (out / "lateness.png").stat().st_size > 10_000
    assert json.loads((out / "report.json").read_text()) == report
    assert not list(out.glob(".data-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.rest
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out"
    demo = subprocess.Popen(
        [sys.executable, "-m", "tarry", "demo", "--small", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Of a shell's background job, where it is ignored, it would be ignored here, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    killer = threading.Timer(120, demo.kill)
    killer.start()
    try:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "Spark pipeline" in line:
                break
        assert processes_of(out)
        demo.send_signal(number)
        _, log = demo.communicate()
    finally:
        killer.cancel()
        demo.kill()
        demo.wait()
    assert demo.returncode == 130, log
    assert "Traceback" not in log
    assert processes_of(out) == []
    assert not list(out.glob(".data-*"))


def processes_of(out: Path) -> list[str]:
    """Command lines that name the directory; not the demo's own."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(out) in command and "tarry demo" not in command:
            lines.append(command)
    return lines
