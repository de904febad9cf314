"""The command line before it talks to anybody: help, usage errors, exit codes, what is imported."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tarry.base import errors
from tarry.base.errors import TarryError
from tarry.base.version import VERSION, commit
from tarry.cli import exits
from tarry.cli.exits import ExitCode, exit_code
from tarry.cli.main import command as command_line
from tarry.cli.main import run

COMMANDS = (
    *("serve", "gateway", "send", "receive", "work", "cancel", "reschedule", "find-key", "jobs"),
    *("pending", "list", "peek", "forecast", "status", "top", "dump", "verify"),
    *("migrate", "compact", "expire", "takeover", "size"),
    *("audit", "history", "backup", "restore", "whoami", "can", "audit-log", "advance"),
)
GROUPS = ("group", "topic", "dead", "push", "token", "identity", "bridge")
OF_OTHERS = ("demo", "relay")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("TARRY_ENDPOINT", "TARRY_CONFIG", "TARRY_DATA", "FORCE_COLOR", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)


def test_every_command_is_there() -> None:
    made = {name: command_line().get_command(None, name) for name in command_line().list_commands(None)}
    assert [name for name, each in made.items() if not each.hidden] == [*COMMANDS, *GROUPS, *OF_OTHERS]


@pytest.mark.parametrize("command", [*COMMANDS, *OF_OTHERS])
def test_help_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert f"tarry {command}" in capsys.readouterr().out.split("Options")[0].split("Usage", 1)[1]


@pytest.mark.parametrize(
    ("arguments", "also"),
    [
        (["--help"], "pydantic"),
        (["serve", "--print-config"], ""),
        pytest.param(["serve", "--help"], "", marks=pytest.mark.rest),
        pytest.param(["send"], "", marks=pytest.mark.rest),
    ],
)
def test_help_does_not_import_what_is_slow(arguments: list[str], also: str) -> None:
    code = (
        "import sys; from tarry.cli.main import run; run(sys.argv[1:]);"
        f"heavy = {{'asyncio', 'pyarrow', 'pyspark', 'numpy', 'deltalake', 'pandas', '{also}'}} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    shown = re.fullmatch(r"tarry (\d+\.\d+\.\d+)(?: \(([0-9a-f]{12})\))?\n", capsys.readouterr().out)
    assert shown is not None
    assert shown.groups() == (VERSION, commit())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["sendd"], "usage: No such command 'sendd'"),
        (["send"], "usage: Missing argument"),
        (["send", "--nope"], "usage: No such option"),
        (["receive", "a", "--max", "0"], "usage: Invalid value"),
        (["send", "a", "b", "--delay", "1 fortnight"], "invalid_argument: --delay: not a duration: '1 fortnight'"),
        (["group", "set", "a", "g", "--lease", "-5"], "invalid_argument: --lease -5.0 is negative"),
        (["send", "a", "b", "--delay", "-5"], "invalid_argument: --delay -5.0 is negative"),
        (["send", "a", "b", "--delay", "1" * 30], "delay_too_long: --delay is more than 64 bits"),
        (["send", "a", "b", "--due", "tomorrow"], "invalid_argument: --due 'tomorrow' is not an instant; allowed: "),
        (["send", "a", "b", "--due", "2026-01-01"], "invalid_argument: --due '2026-01-01' is not an instant"),
        (["send", "a", "b", "--due", "5", "--delay", "5"], "invalid_argument: --delay 5 and --due 5 are both given"),
        (["send", "a", "b", "--ttl", "x"], "invalid_argument: --ttl: not a duration: 'x'"),
        (["send", "a", "b", "-p", "x"], "invalid_argument: --property x: no name or no value"),
        (["send", "a", "b", "--lines"], "invalid_argument: a body, and --file or --lines, are given"),
        (["send", "a", "--lines", "--id", "x"], "invalid_argument: --id x with --lines"),
        (["send", "a", "--lines", "--key", "x"], "invalid_argument: --key x with --lines"),
        (["send", "a b", "c"], "invalid_message: topic 'a b' is not a topic name; allowed: "),
        (["receive", "a", "--wait", "soon"], "invalid_argument: --wait: not a duration: 'soon'"),
        (["receive", "a", "--follow", "--no-ack"], "invalid_argument: --follow with --no-ack"),
        (["pending", "-e", "nowhere"], "invalid_argument: address 'nowhere'"),
        (["list", "--until", "5", "--within", "5m"], "invalid_argument: --until 5 and --within 5m are both given"),
        (["list", "--after", "tomorrow"], "invalid_argument: --after 'tomorrow' is not an instant"),
        (["list", "--limit", "0"], "usage: Invalid value"),
        (["peek", "a", "--limit", "1001"], "usage: Invalid value"),
        (["forecast", "--until", "soon"], "invalid_argument: --until 'soon' is not an instant"),
        (["top", "--interval", "0"], "usage: Invalid value"),
        (["serve", "--pipeline", "maybe"], 'pipeline is \'maybe\' (command line); allowed: "on" or "off"'),
        (["serve", "--flight", "7611"], "flight is '7611' (command line); allowed: HOST:PORT"),
        (
            ["serve", "--set", "horizont_ms=5"],
            "unknown setting 'horizont_ms' (command line; is it horizon_ms?); allowed: ",
        ),
        (["serve", "--set", "horizon_ms"], "--set horizon_ms: no value"),
        (["serve", "--config", "/nonexistent.toml"], "configuration file /nonexistent.toml: No such file"),
        (["serve", "--mqtt", "a:1"], "It is a setting: --set mqtt=VALUE. See: tarry serve --help"),
        (
            ["serve", "--pipeline", "off", "--set", "pipeline=on"],
            "--pipeline off and --set pipeline=on contradict each other; allowed: one of them",
        ),
        (["serve", "--http-admin", "a:1", "--set", "http_admin=a:2"], "--http-admin a:1 and --set http_admin=a:2 con"),
        (
            ["serve", "--spark-conf", "a=b", "--spark-conf", "password=x", "--set", "spark_conf=a=d"],
            "--spark-conf and --set spark_conf contradict",
        ),
        (["serve", "--data"], "Option '--data' requires an argument. See: tarry serve --help\n"),
        (["gateway", "--broker"], "requires an argument. See: tarry gateway --help\n"),
        (["group", "set", "a", "g", "--lease"], "requires an argument. See: tarry group set --help\n"),
        (["send", "a", "b", "--lines=x"], "does not take a value. See: tarry send --help\n"),
        (["sendd", "serve"], "See: tarry --help\n"),
        (["gateway", "--tls-key", "x"], "It is a setting: --set tls_key=VALUE. See: tarry gateway --help\n"),
        (
            ["gateway", "--http", "a:1"],
            "It is the broker's setting: tarry serve --set http=VALUE; allowed here: --broker, --rocketmq, --workers, "
            "--set, --verbose. See: tarry gateway --help\n",
        ),
        (["serve", "--set", "tls_certificate=/no.pem", "--set", "tls_key=/no.key"], "/no.pem"),
        (["serve", "--set", "tls_key=/no.key"], "tls_key"),
        (
            ["serve", "--set", "htpp=a:1"],
            "'htpp' (command line; is it http?); allowed: those that tarry serve --print-config shows\n",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("tarry: ")
    assert said.err.count("\n") == 1
    assert text in said.err


@pytest.mark.parametrize("log", ["nonsense", "s3://", "s3:///prefix", "http://a/b"])
def test_a_log_that_is_no_bucket_is_told_before_the_store_that_it_asks_for(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--data", str(tmp_path), "--pipeline", "off", "--log", log]) == ExitCode.USAGE
    assert f"invalid_argument: logs cannot be kept at {log}; allowed: s3://BUCKET/PREFIX\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["pending"],
        ["list"],
        ["peek", "a"],
        ["forecast"],
        ["top", "--once"],
        ["status"],
        ["send", "a", "b"],
        ["receive", "a"],
        ["cancel", "h"],
        ["find-key", "a", "b"],
    ],
)
def test_a_broker_out_of_reach(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--endpoint", "127.0.0.1:1"]) == ExitCode.UNAVAILABLE
    said = capsys.readouterr()
    assert said.err.startswith("tarry: unavailable: ")
    assert "127.0.0.1:1" in said.err
    assert said.err.count("\n") == 1


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["send", "a", "--file", "/nonexistent"]) == ExitCode.FAILED
    assert capsys.readouterr().err == "tarry: os_error: /nonexistent: No such file or directory\n"


def test_an_unexpected_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("tarry.cli.look.connect", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        run(["pending"])


def test_every_error_has_an_exit_code() -> None:
    codes = {
        cls.code: exit_code(cls("x"))
        for cls in vars(errors).values()
        if isinstance(cls, type) and issubclass(cls, TarryError)
    }
    assert codes == {
        "internal": 1, "invalid_argument": 2, "invalid_message": 2, "delay_too_long": 2, "message_too_large": 2,
        "key_exists": 8, "forged_handle": 2,
        "not_found": 1, "stale_lease": 1, "stale_commit": 1, "overloaded": 6, "quota_exceeded": 6,
        "disk_full": 6, "filter_paused": 6,
        "unavailable": 5, "closed": 5, "locked": 3, "corrupt": 4, "fatal": 7, "illegal_transition": 1,
        "unauthenticated": 9, "forbidden": 9, "ownership_lost": 10, "trimmed": 1, "native_only": 1,
    }  # fmt: skip


def test_the_help_names_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == ExitCode.OK
    told = re.sub(r"\s+", " ", capsys.readouterr().out).partition("Exit codes: ")[2]
    assert [int(each) for each in re.findall(r"(\d+) [a-z]", told)] == sorted(ExitCode)


def test_the_documented_exit_codes_are_these() -> None:
    documented = re.findall(r"^\| (\d+) \| (.*?) \|$", (ROOT / "docs/operations-running.md").read_text(), re.MULTILINE)
    assert documented == [(str(int(code)), meaning) for code, meaning in exits.MEANINGS.items()]
    assert set(exits.MEANINGS) == set(ExitCode)


def test_print_config_can_be_used_as_a_config_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--data", "x", "--set", "horizon_ms=2m", "--pipeline", "off", "--print-config"]) == 0
    text = capsys.readouterr().out
    assert "From: command line.\nhorizon_ms = 120000" in text
    (tmp_path / "tarry.toml").write_text(text)
    assert run(["serve", "--config", str(tmp_path / "tarry.toml"), "--print-config"]) == 0
    again = capsys.readouterr().out
    assert [line for line in again.splitlines() if line[:1] != "#"] == [
        line for line in text.splitlines() if line[:1] != "#"
    ]


def test_an_option_and_a_set_may_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    same = ["--workers", "2", "--set", "workers=2", "--data", "x", "--set", "data=x", "--standby"]
    assert run(["serve", *same, "--set", "takeover=manual", "--print-config"]) == ExitCode.OK
    assert '\ntakeover = "manual"\n' in capsys.readouterr().out


class WithoutAiormq:
    """Finds modules as where aiormq is not installed: a None in its place names the submodule that is asked for."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "aiormq":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_the_bridge_without_its_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [*sys.modules]:
        if name.startswith(("tarry.bridge", "aiormq")) or name == "tarry.cli.bridge_process":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [WithoutAiormq(), *sys.meta_path])
    assert run(["bridge", "rabbitmq"]) == ExitCode.FAILED
    assert "needs the extra 'rabbitmq': the module 'aiormq' is not installed; allowed: pip" in capsys.readouterr().err
