"""Any setting of Spark's, from wherever it is given to the session that gets it."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tarry.base.config import load
from tarry.base.errors import InvalidArgumentError
from tarry.base.spark_conf import parse_lines, parse_pairs, read_file
from tarry.cli import outlook
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.fronts.registry import ServerConfig
from tarry.spark.pipeline import compact, schedule
from tarry.spark.pipeline.supervisor import PipelineSupervisor, schedule_command, unreachable_for_executors, write_conf
from tarry.spark.reports import session as reports
from tarry.spark.runtime import session
from tarry.spark.runtime.conf import machine_conf, merged, set_python, user_conf
from tarry.spark.runtime.launch import java_properties
from tarry_relay import job as relay_job
from tarry_relay.command import make
from tarry_relay.job import Relay

RELAY = {"kafka": "k:9092", "topics": "t", "store": "s", "checkpoint": "c"}


# -- what may be written -----------------------------------------------------------------------------------------------


def test_pairs_and_lines() -> None:
    assert parse_pairs(["spark.a=1", "spark.b = x=y ", "spark.a=2"]) == {"spark.a": "2", "spark.b": "x=y"}
    assert parse_lines("\nspark.a=1\n\nspark.b=\n") == {"spark.a": "1", "spark.b": ""}


def test_a_file_like_sparks_own(tmp_path: Path) -> None:
    file = tmp_path / "spark.conf"
    file.write_text(
        "# comment\n\nspark.executor.memory  4g\nspark.a=b=c\nspark.c : d e \n"
        "spark.executor.extraJavaOptions  -Da=1 \\\n  -Db=2\n"
    )
    assert read_file(file) == {
        "spark.executor.memory": "4g",
        "spark.a": "b=c",
        "spark.c": "d e",
        "spark.executor.extraJavaOptions": "-Da=1   -Db=2",
    }
    assert user_conf(["spark.a=1"], file)["spark.a"] == "1"
    (tmp_path / "first.conf").write_text("spark.a 2\n")
    assert user_conf([], tmp_path / "first.conf", None, file) == {**read_file(file), "spark.a": "2"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("spark.a", "has no value"),
        ("executor.memory=1g", "begin with 'spark.'"),
        ("spark.master=yarn", "--spark-master"),
        ("spark.sql.session.timeZone=Europe/Berlin", "UTC"),
        ("spark.submit.deployMode=cluster", "client"),
    ],
)
def test_what_is_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        parse_pairs([text])
    with pytest.raises(InvalidArgumentError, match="spark_conf is"):
        ServerConfig(spark_conf=text)
    file = tmp_path / "conf"
    file.write_text(text)
    with pytest.raises(InvalidArgumentError, match=str(file)):
        read_file(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"cannot be read: .*No such file"):
        user_conf((), tmp_path / "none")


def test_a_broker_refuses_before_it_starts_the_pipeline(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        PipelineSupervisor.of_schedule(
            ServerConfig(data=tmp_path, spark_conf_file=str(tmp_path / "none")), "127.0.0.1:1"
        )


@pytest.mark.parametrize(
    ("master", "flight", "advertised", "warned"),
    [
        ("spark://master:7077", "127.0.0.1:7611", None, True),
        ("yarn", "[::1]:7611", None, True),
        ("k8s://https://kubernetes.default.svc", "localhost:7611", None, True),
        ("yarn", "127.0.0.1:7611", "broker:7611", False),
        ("yarn", "10.0.0.7:7611", None, False),
        ("spark://127.0.0.1:7077", "127.0.0.1:7611", None, False),
        ("local[*]", "127.0.0.1:7611", None, False),
    ],
)
def test_an_address_that_executors_cannot_reach(master: str, flight: str, advertised: str | None, warned: bool) -> None:
    config = ServerConfig(spark_master=master, flight_advertised=advertised)
    text = unreachable_for_executors(config, flight)
    assert (text is not None) == warned
    if text is not None:
        assert master in text
        assert flight in text


def test_compact_has_settings_for_spark_only_with_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compact", "--spark-conf", "spark.a=1"]) == ExitCode.USAGE
    assert "without --spark-master" in capsys.readouterr().err


# -- from where it is given ... ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        'spark_conf = "spark.a=1\\nspark.b=x y"',
        'spark_conf = ["spark.a=1", "spark.b=x y"]',
        '[spark_conf]\n"spark.a" = 1\n"spark.b" = "x y"',
    ],
)
def test_in_a_file_of_settings(text: str, tmp_path: Path) -> None:
    file = tmp_path / "tarry.toml"
    file.write_text(text)
    loaded = load(file, environment={}, model=ServerConfig)
    assert parse_lines(loaded.config.spark_conf) == {"spark.a": "1", "spark.b": "x y"}
    file.write_text(loaded.to_toml())
    assert load(file, environment={}, model=ServerConfig).config == loaded.config


def test_on_the_command_line_of_serve(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--spark-conf", "spark.a=1", "--spark-conf", "spark.b=2", "--spark-conf-file", "x.conf"]
    assert run(["serve", *options, "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert 'spark_conf = "spark.a=1\\nspark.b=2"' in printed
    assert 'spark_conf_file = "x.conf"' in printed


def test_to_the_schedule_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("more.conf").write_text("spark.c 3\nspark.a 9\n")
    lines = "spark.a=1\nspark.b=-x y\nspark.d=C:\\\nspark.s3.secret.key=S3CRET ="
    config = ServerConfig(data=tmp_path, spark_conf=lines, spark_conf_file="more.conf")
    command = schedule_command(config, "127.0.0.1:1", tmp_path / "pipeline" / "c")
    assert not any("S3CRET" in text for text in command), "which each user of the machine can read"
    write_conf(config, tmp_path / "pipeline")
    assert stat.S_IMODE((tmp_path / "pipeline" / "spark.conf").stat().st_mode) == 0o600
    options = schedule.parse(command[3:])
    monkeypatch.chdir("/")
    given = user_conf(options.spark_conf, *options.spark_conf_file)
    kept = {"spark.d": "C:\\", "spark.s3.secret.key": "S3CRET ="}
    assert given == {"spark.a": "1", "spark.b": "-x y", "spark.c": "3", **kept}
    write_conf(ServerConfig(data=tmp_path), tmp_path / "pipeline")
    assert not (tmp_path / "pipeline" / "spark.conf").exists()


def test_secrets_are_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["spark.hadoop.fs.s3a.Secret.key", "spark.ssl.keyStorePassword", "spark.x.token"]
    environment = {"TARRY_SPARK_CONF": "\n".join(["spark.a=1", *(f"{name}=S3CRET" for name in names)])}
    text = load(None, environment=environment, model=ServerConfig).to_toml()
    assert "S3CRET" not in text
    assert f"Not shown; give them where this file is used: {', '.join(names)}." in text
    assert '\nspark_conf = "spark.a=1"\n' in text
    (tmp_path / "tarry.toml").write_text(text)
    assert load(tmp_path / "tarry.toml", environment={}, model=ServerConfig).config.spark_conf == "spark.a=1"
    for wrong, why in (("executor.memory=1g", "names 'executor.memory'"), ("spark.a", "'spark.a' has no value")):
        with pytest.raises(InvalidArgumentError, match=why) as raised:
            load(None, environment={"TARRY_SPARK_CONF": f"spark.x.token=S3CRET\n{wrong}"}, model=ServerConfig)
        assert "S3CRET" not in str(raised.value)


def test_settings_as_java_reads_them() -> None:
    settings = {"spark.a": "1", "spark.driver.extraJavaOptions": '"-Dx=a b" \\d', "spark.b": " x\ny", "spark.c:=": "é"}
    assert java_properties(settings) == (
        'spark.a=1\nspark.driver.extraJavaOptions="-Dx=a b" \\\\d\nspark.b=\\ x\\ny\nspark.c\\:\\==é\n'
    )


class SessionError(Exception):
    """Instead of a session."""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a session would be built with."""
    given: dict[str, Any] = {}

    def build(**options: Any) -> None:
        given.update(options)
        raise SessionError

    for module in (schedule, compact, relay_job, session):
        monkeypatch.setattr(module, "build_session", build)
    return given


def test_to_the_upkeep_by_itself(built: dict[str, Any]) -> None:
    options = compact.parse(["--flight", "127.0.0.1:1", "--spark-conf", "spark.a=1"])
    with pytest.raises(SessionError), compact._rewrite(options, 0):  # noqa: SLF001 - where the session begins
        pass
    assert built["conf"] == {"spark.a": "1"}


def test_to_the_relay(built: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "more.conf"
    file.write_text("spark.b 2")
    for given in (["spark.a=1"], {"spark.a": 1}):
        relay = Relay(*make({**RELAY, "spark_conf": given, "spark_conf_file": str(file)}))
        with pytest.raises(SessionError):
            relay.session()
        assert built["conf"] == {"spark.a": "1", "spark.b": "2"}
    with pytest.raises(InvalidArgumentError, match="which begin with"):
        Relay(*make({**RELAY, "spark_conf": ["a=1"]}))


@pytest.mark.parametrize(
    ("master", "slots"),
    [
        ("spark://h:7077", {"spark.cores.max": "10"}),
        ("yarn", {"spark.executor.cores": "4", "spark.executor.instances": "3"}),
        ("k8s://https://h", {"spark.executor.cores": "4", "spark.executor.instances": "3"}),
    ],
)
def test_a_relay_has_slots_for_its_long_tasks(master: str, slots: dict[str, str], built: dict[str, Any]) -> None:
    with pytest.raises(SessionError):
        Relay(*make({**RELAY, "master": master, "shards": 3})).session()
    assert {name: built["settings"].get(name) for name in slots} == slots


def test_to_reports(built: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(SessionError),
        reports.report_session("r", master="local[1]", memory="1g", conf={"spark.a": "1"}),
    ):
        pass
    assert built["conf"] == {"spark.a": "1"}
    built.clear()
    for command in (["audit", "-a", "x", "-d", "y"], ["forecast", "--store", "x"]):
        with pytest.raises(SessionError):
            run([*command, "--spark-conf", "spark.b=2"])
        assert built.pop("conf") == {"spark.b": "2"}
        assert run([*command, "--spark-conf", "b=2"]) == ExitCode.USAGE
        assert "begin with" in capsys.readouterr().err
    assert outlook.DEFAULTS


# -- ... to the session ------------------------------------------------------------------------------------------------


def test_who_wins() -> None:
    ours = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.memory": "1g"}
    machine = {"spark.ui.enabled": "true", "spark.driver.memory": "3g", "spark.eventLog.enabled": "true"}
    chosen = merged("local[2]", ours, machine, {"spark.driver.memory": "2g", "spark.new": "1"})
    # What only the machine has is Spark's to read.
    assert chosen == {
        "spark.ui.enabled": "true",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.new": "1",
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
    }


def test_java_options_are_added() -> None:
    ours = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}
    chosen = merged("local", ours, {}, {"spark.driver.extraJavaOptions": "-Dx=1"})
    assert chosen["spark.driver.extraJavaOptions"] == "-XX:+UseSerialGC -Dx=1"


@pytest.mark.parametrize(
    ("master", "machine", "user", "cores"),
    [
        ("spark://h:7077", {}, {}, "2"),
        ("spark://h:7077", {"spark.cores.max": "6"}, {}, "6"),
        ("spark://h:7077", {"spark.cores.max": "6"}, {"spark.cores.max": "8"}, "8"),
        ("local[*]", {}, {}, None),
        ("yarn", {}, {}, None),
    ],
)
def test_a_standalone_cluster_is_shared(master: str, machine: Any, user: Any, cores: str | None) -> None:
    assert merged(master, {}, machine, user).get("spark.cores.max") == cores


@pytest.mark.parametrize(
    ("master", "machine", "user", "authenticated"),
    [
        ("local[2]", {}, {}, "true"),
        ("local[2]", {"spark.authenticate": "false"}, {}, "false"),
        ("local[2]", {}, {"spark.authenticate": "false"}, "false"),
        ("yarn", {}, {}, "true"),
        ("yarn", {"spark.shuffle.service.enabled": "true"}, {}, None),
        ("yarn", {}, {"spark.shuffle.service.enabled": "true", "spark.authenticate": "true"}, "true"),
        ("spark://h:7077", {}, {}, None),
        ("k8s://h", {}, {}, None),
    ],
)
def test_sparks_processes_know_each_other(
    master: str, machine: dict[str, str], user: dict[str, str], authenticated: str | None
) -> None:
    assert merged(master, {}, machine, user).get("spark.authenticate") == authenticated


def test_the_machines_settings(tmp_path: Path) -> None:
    assert machine_conf({}) == {}
    assert machine_conf({"SPARK_CONF_DIR": str(tmp_path)}) == {}
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.master yarn\nspark.ui.enabled true\n")
    found = {"spark.master": "yarn", "spark.ui.enabled": "true"}
    assert machine_conf({"SPARK_CONF_DIR": str(tmp_path / "conf")}) == found
    assert machine_conf({"SPARK_HOME": str(tmp_path)}) == found


# -- the workers' Python -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "environment", "python"),
    [
        ({}, {}, sys.executable),
        ({}, {"PYSPARK_PYTHON": "python3.12"}, "python3.12"),
        ({}, {"PYSPARK_PYTHON": "/opt/python"}, "/opt/python"),
        ({"spark.pyspark.python": "/usr/bin/python"}, {"PYSPARK_PYTHON": "/opt/python"}, "/usr/bin/python"),
    ],
)
def test_the_python_of_the_workers(settings: Any, environment: dict[str, str], python: str) -> None:
    set_python(settings, environment)
    assert environment == {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}


def test_a_python_of_an_archive_needs_a_link_for_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {"PYSPARK_PYTHON": "./environment/bin/python"}
    with pytest.raises(InvalidArgumentError, match=f"ln -s {sys.prefix} environment"):
        set_python({}, environment)
    Path("environment").symlink_to(sys.prefix)
    set_python({}, environment)
    assert environment["PYSPARK_PYTHON"] == "./environment/bin/python"
