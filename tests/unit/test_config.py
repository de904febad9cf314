"""Settings: where they come from, what they may be, and the file that shows them all."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.config import allowed, load
from tarry.base.errors import InvalidArgumentError
from tarry.base.setting_types import parse_size
from tarry.fronts.registry import ServerConfig


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TARRY_DATA", "TARRY_CONFIG", "TARRY_HORIZON_MS"):
        monkeypatch.delenv(name, raising=False)


def file_with(directory: Path, text: str) -> Path:
    path = directory / "tarry.toml"
    path.write_text(text)
    return path


def test_precedence_is_command_line_environment_file_default(tmp_path: Path) -> None:
    file = file_with(tmp_path, 'horizon_ms = 1001\nlease_ms = 1002\nretry_ms = "3s"\n')
    environment = {"TARRY_HORIZON_MS": "2001", "TARRY_LEASE_MS": "2s", "PATH": "/bin"}
    loaded = load(file, {"horizon_ms": 3001, "lease_ms": None}, environment, model=ServerConfig)
    assert (loaded.config.horizon_ms, loaded.config.lease_ms, loaded.config.retry_ms) == (3001, 2000, 3000)
    assert loaded.config.shard == 0
    assert [loaded.origins[n] for n in ("horizon_ms", "lease_ms", "retry_ms", "shard")] == [
        "command line",
        "environment",
        str(file),
        "default",
    ]


def test_the_environment_may_name_the_file_and_the_command_line_another(tmp_path: Path) -> None:
    named = file_with(tmp_path, "shard = 1")
    (tmp_path / "b").mkdir()
    other = file_with(tmp_path / "b", "shard = 2")
    assert load(environment={"TARRY_CONFIG": str(named)}, model=ServerConfig).config.shard == 1
    assert load(other, environment={"TARRY_CONFIG": str(named)}, model=ServerConfig).config.shard == 2


def test_what_else_has_our_prefix_is_left_alone() -> None:
    links = {
        "TARRY_PORT": "tcp://10.0.0.1:7611",
        "TARRY_SERVICE_HOST": "10.0.0.1",
        "TARRY_SERVICE_PORT_FLIGHT": "7611",
        "TARRY_PORT_7611_TCP": "x",
        "TARRY_METRICS_PORT": "tcp://10.0.0.2:7612",
        "TARRY_METRICS_SERVICE_HOST": "10.0.0.2",
    }
    loaded = load(environment={**links, "TARRY_ENDPOINT": "a:1", "TARRY_AMQP_URL": "amqp://a"}, model=ServerConfig)
    assert loaded == load(environment={}, model=ServerConfig)
    assert loaded.unknown_variables == ()


def test_a_variable_that_is_no_setting_is_told_of_and_not_refused() -> None:
    loaded = load(environment={"TARRY_HORIZN_MS": "5", "TARRY_LEASE_MS": "5s", "TARRY_": "x"}, model=ServerConfig)
    assert loaded.unknown_variables == ("TARRY_", "TARRY_HORIZN_MS")
    assert loaded.config == load(flags={"lease_ms": 5_000}, environment={}, model=ServerConfig).config


def test_an_open_broker_takes_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_HORIZON_MS", "7s")
    assert ServerConfig().horizon_ms == 7000
    assert ServerConfig(horizon_ms=8000).horizon_ms == 8000


@pytest.mark.parametrize(
    ("name", "value", "got"),
    [
        ("wheel_bytes_max", "64MiB", 64 << 20),
        ("wheel_bytes_max", " 64 mib ", 64 << 20),
        ("wheel_bytes_max", "64MB", 64_000_000),
        ("wheel_bytes_max", "2G", 2_000_000_000),
        ("wheel_bytes_max", "2097152", 2 << 20),
        ("wheel_bytes_max", "2097152B", 2 << 20),
        ("wheel_bytes_max", str(1 << 60), 1 << 60),
        ("schedule_bytes", 5, 5),
        ("horizon_ms", "10m", 600_000),
        ("horizon_ms", "1h30m", 5_400_000),
        ("horizon_ms", " 250 ", 250),
        ("delay_ms_max", "52w", 52 * 7 * 86_400_000),
        ("shard", "7", 7),
        ("flight", "0.0.0.0:0", "0.0.0.0:0"),
        ("flight", "[::1]:7611", "[::1]:7611"),
        ("flight", "", None),
        ("store", "", None),
        ("store", "s3://bucket/table", "s3://bucket/table"),
        ("data", "~/tarry", Path.home() / "tarry"),
        ("pipeline", "off", "off"),
        ("spark_master", "yarn", "yarn"),
        ("spark_master", "local[2]", "local[2]"),
        ("spark_master", "spark://a:7077,b:7077", "spark://a:7077,b:7077"),
        ("spark_master", "k8s://https://a", "k8s://https://a"),
    ],
)
def test_values_that_are_taken(name: str, value: Any, got: Any) -> None:
    assert getattr(load(flags={name: value}, environment={}, model=ServerConfig).config, name) == got
    assert getattr(ServerConfig(**{name: value}), name) == got


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("horizon_ms", 1 << 62, "10 or more, and no more than 3"),
        ("horizon_ms", 9, 'horizon_ms is 9 (command line); allowed: milliseconds or a text like "10m", 10 or more'),
        ("horizon_ms", "soon", "horizon_ms is 'soon'"),
        ("horizon_ms", "", "horizon_ms is ''"),
        ("horizon_ms", True, "horizon_ms is True"),
        ("horizon_ms", 1.5, "horizon_ms is 1.5"),
        ("horizon_ms", 2**70, "horizon_ms is"),
        ("retention_ms", "9" * 20, "0 or more, and no more than 31622400000000"),
        ("wheel_bytes_max", "9" * 20, "1024 or more, and no more than 1152921504606846976"),
        ("wheel_bytes_max", str((1 << 60) + 1), "1024 or more, and no more than 1152921504606846976"),
        ("groups_max", "9" * 20, "1 or more, and no more than 2147483648"),
        ("wheel_bytes_max", "64 MOPS", "wheel_bytes_max is '64 MOPS'"),
        ("wheel_bytes_max", "-1", "wheel_bytes_max is '-1'"),
        ("shard", 1000, "shard is 1000 (command line); allowed: a whole number, 0 to 999"),
        ("shard", True, "shard is True"),
        ("pipeline", "maybe", 'pipeline is \'maybe\' (command line); allowed: "on" or "off"'),
        ("flight", "7611", "flight is '7611' (command line); allowed: HOST:PORT"),
        ("flight", ":7611", "flight is ':7611'"),
        ("flight", "a:65536", "flight is 'a:65536'"),
        ("flight", "http://a:1", "flight is 'http://a:1'"),
        ("flight", "a b:1", "flight is 'a b:1'"),
        ("delay_levels", "", "delay_levels is ''"),
        ("delay_levels", "1s two", "delay_levels is '1s two'"),
        ("spark_memory", "much", "spark_memory is 'much'"),
        ("spark_master", "foo", "spark_master is 'foo' (command line); allowed: \"yarn\", or what begins with"),
        ("spark_master", "yarn-client", "spark_master is 'yarn-client'"),
        ("spark_master", "", "spark_master is ''"),
        ("horizont_ms", 5, "unknown setting 'horizont_ms' (command line; is it horizon_ms?); allowed: those that"),
        ("qwxyz", 5, "unknown setting 'qwxyz' (command line); allowed: audit_log, "),
    ],
)
def test_values_that_are_refused_with_name_value_and_what_is_allowed(name: str, value: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        load(flags={name: value}, environment={}, model=ServerConfig)
    assert text in str(caught.value)
    assert "allowed: " in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="allowed: "):
        ServerConfig(**{name: value})


def test_a_refusal_says_where_the_value_was_given(tmp_path: Path) -> None:
    file = file_with(tmp_path, "shard = -1")
    with pytest.raises(InvalidArgumentError, match=r"shard is -1 \(.*tarry\.toml\)"):
        load(file, environment={}, model=ServerConfig)
    with pytest.raises(InvalidArgumentError, match=r"shard is 'x' \(environment\)"):
        load(environment={"TARRY_SHARD": "x"}, model=ServerConfig)
    with pytest.raises(InvalidArgumentError, match=r"unknown setting 'broker'.*tarry\.toml"):
        load(file_with(tmp_path, "[broker]\nshard = 1"), environment={}, model=ServerConfig)


@pytest.mark.parametrize("content", [b"shard = ", b"\xff\xfe", b"shard = 1\nshard = 2"])
def test_a_file_that_is_no_toml(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=r"bad\.toml is not TOML"):
        load(path, environment={}, model=ServerConfig)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml", environment={}, model=ServerConfig)
    with pytest.raises(InvalidArgumentError, match="directory"):
        load(tmp_path, environment={}, model=ServerConfig)


def test_a_master_does_not_matter_where_no_pipeline_runs() -> None:
    flags = {"pipeline": "off", "spark_master": "foo"}
    assert load(flags=flags, environment={}, model=ServerConfig).config.spark_master == "foo"


def test_the_printed_file_gives_the_same_settings(tmp_path: Path) -> None:
    odd = 'a "b" \\ c \x7f ü \U0001f600 \x01'
    flags = {"data": f"/tmp/{odd}", "store": odd, "flight": "", "spark_master": f"local{odd}"}
    flags |= {"wheel_bytes_max": "1GiB"}
    loaded = load(flags=flags, environment={"TARRY_LEASE_MS": "5s"}, model=ServerConfig)
    again = load(file_with(tmp_path, loaded.to_toml()), environment={}, model=ServerConfig)
    assert again.config == loaded.config
    assert set(again.origins.values()) == {str(tmp_path / "tarry.toml")}
    assert list(tomllib.loads(loaded.to_toml())) == list(ServerConfig.model_fields)


def test_the_printed_file_describes_each_setting_and_says_where_it_came_from() -> None:
    text = load(flags={"shard": 3}, environment={"TARRY_LEASE_MS": "5s"}, model=ServerConfig).to_toml()
    assert (
        "# This broker's part of the store.\n# Allowed: a whole number, 0 to 999. From: command line.\nshard = 3"
        in text
    )
    assert "From: environment.\nlease_ms = 5000" in text
    for name, field in ServerConfig.model_fields.items():
        assert field.description
        assert f"# {field.description}\n" in text
        assert allowed(name, field)


def test_settings_do_not_change_once_read() -> None:
    with pytest.raises(ValueError, match="frozen"):
        ServerConfig().shard = 5


@given(st.text(max_size=30))
def test_sizes_are_understood_or_refused(text: str) -> None:
    try:
        assert parse_size(text) >= 0
    except ValueError:
        pass


def test_the_documented_settings_are_these() -> None:
    rows = []
    for name, field in ServerConfig.model_fields.items():
        default = "none" if field.default is None else f"`{field.default}`"
        rows.append(f"| `{name}` | {default} | {allowed(name, field)} | {field.description} |")
    documented = (Path(__file__).parents[2] / "docs/operations-settings.md").read_text().splitlines()
    assert sorted([line for line in documented if line.startswith("| `") and line.count("|") == 5]) == sorted(rows)
