"""``tarry gateway`` and ``tarry serve --workers``: what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarry.cli.exits import ExitCode
from tarry.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["serve", "--data", "{tmp}", "--workers", "2"], "rocketmq has no address"),
        (["serve", "--data", "{tmp}", "--workers", "-1"], "workers is"),
        (["serve", "--data", "{tmp}", "--set", "gateway=unix:"], "gateway is 'unix:'"),
        (["serve", "--data", "{tmp}", "--set", "gateway=nowhere"], "unix:PATH"),
        (["serve", "--data", "{tmp}", "--set", "gateway=127.0.0.1:0"], "gateway_secret is not given"),
        (["gateway", "--broker", "nowhere", "--rocketmq", "127.0.0.1:0"], "nowhere"),
        (
            ["gateway", "--broker", "unix:/x", "--rocketmq", "127.0.0.1:0", "--set", "lease_ms=1"],
            "that is the broker's",
        ),
        (["gateway", "--broker", "unix:/x", "--rocketmq", "127.0.0.1:0", "--workers", "0"], "workers"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([argument.format(tmp=tmp_path) for argument in arguments]) == ExitCode.USAGE
    assert text in capsys.readouterr().err
