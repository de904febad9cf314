"""Where the store is: the same table from every working directory and machine, or a refusal that names both."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tarry.base.config import load
from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.broker import Broker
from tarry.cli.main import run
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.registry import ServerConfig
from tarry.spark.broker_client import BrokerClient, IntakeState
from tarry.spark.broker_store import open_store
from tarry.spark.pipeline import schedule
from tarry.spark.pipeline.stage_task import StageTask
from tarry.spark.pipeline.supervisor import schedule_command
from tarry.store import Store, check_same_table
from tarry.store.place import Place
from tarry_relay.job import Relay
from tarry_relay.settings import RelaySettings, RunOptions


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A broker that was told of its directories by relative paths, and its address."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    with Broker.open(
        load(flags={"data": "data", "store": "tables/store"}, environment={}, model=ServerConfig).config
    ) as broker:
        front = FlightFront.start(broker, "127.0.0.1:0")
        try:
            yield broker, front.address
        finally:
            front.stop()


def state_of(broker: Broker) -> IntakeState:
    state = broker.intake_state()
    return IntakeState(**{each.name: state[each.name] for each in fields(IntakeState)})


# -- told --------------------------------------------------------------------------------------------------------------


def test_settings_say_an_absolute_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ServerConfig(data="data").store_uri == str(tmp_path / "data" / "store")
    assert ServerConfig(store="my/store").store_uri == str(tmp_path / "my" / "store")
    assert ServerConfig(store="s3://bucket/store").store_uri == "s3://bucket/store"


def test_a_broker_tells_an_absolute_place_and_its_table(served: Any, tmp_path: Path) -> None:
    broker, address = served
    home = tmp_path / "home"
    place = str(home / "tables" / "store")
    with BrokerClient(address) as client:
        state, job = client.state(), client.begin("some")
    shown = broker.status()["store"]
    assert [state.store_uri, job.store_uri, shown["uri"]] == [place] * 3
    table_id = Store.open(place).table_id
    assert [state.table_id, job.table_id, shown["table_id"]] == [table_id] * 3


def test_the_table_of_a_broker_is_the_same_after_a_restart(tmp_path: Path) -> None:
    config = ServerConfig(data=tmp_path / "data")
    with Broker.open(config) as broker:
        before = broker.status()["store"]["table_id"]
    with Broker.open(config) as broker:
        assert broker.status()["store"]["table_id"] == before


# -- a job ---------------------------------------------------------------------------------------------------------


def test_upkeep_from_another_working_directory(
    served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, address = served
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run(["compact", "--endpoint", address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert list(elsewhere.iterdir()) == []


def test_upkeep_of_a_place_without_a_table_makes_none(
    served: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, address = served
    assert run(["compact", "--endpoint", address, "--store", str(tmp_path / "wrong")]) != 0
    assert f"there is no store at {tmp_path / 'wrong'}" in capsys.readouterr().err
    assert not (tmp_path / "wrong").exists()


def test_upkeep_of_another_table_is_refused(served: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker, address = served
    other = Store.open(str(tmp_path / "other"))
    version = other.snapshot().version
    assert run(["expire", "--endpoint", address, "--store", "../other"]) != 0
    text = " ".join(capsys.readouterr().err.split())
    assert other.table_id in text
    assert broker.status()["store"]["table_id"] in text
    assert Store.open(other.root).snapshot().version == version


def test_a_job_opens_the_table_of_its_broker_alone(served: Any, tmp_path: Path) -> None:
    broker, _ = served
    state = state_of(broker)
    assert open_store(state).root == state.store_uri
    with pytest.raises(UnavailableError, match="there is no store at"):
        open_store(state, str(tmp_path / "none"))
    other = Store.open(str(tmp_path / "other"))
    with pytest.raises(InvalidArgumentError, match=f"is the table {other.table_id}, but the broker's"):
        open_store(state, other.root)
    with pytest.raises(InvalidArgumentError, match=state.table_id):
        open_store(replace(state, table_id="another"))


def test_opening_without_creating(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="there is no store at"):
        Store.open(str(tmp_path / "none"), create=False)
    assert not (tmp_path / "none").exists()
    made = Store.open(str(tmp_path / "store"))
    assert Store.open(str(tmp_path / "store"), create=False).table_id == made.table_id


# -- a task --------------------------------------------------------------------------------------------------------


def test_a_task_refuses_another_directory_of_the_same_path(tmp_path: Path) -> None:
    here, other = Store.open(str(tmp_path / "here")), Store.open(str(tmp_path / "other"))
    check_same_table(here.root, here.table_id)
    with pytest.raises(InvalidArgumentError) as refused:
        check_same_table(here.root, other.table_id)
    assert all(named in str(refused.value) for named in (here.table_id, other.table_id, socket.gethostname()))
    with pytest.raises(UnavailableError, match="sees no table; allowed: a directory that all machines"):
        check_same_table(str(tmp_path / "none"), here.table_id)
    task = StageTask("127.0.0.1:1", str(tmp_path / "none"), here.table_id, 0)
    with pytest.raises(UnavailableError, match="sees no table"):
        next(iter(task([])))
    assert not (tmp_path / "none").exists()


def test_a_relay_knows_absolute_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relay = Relay(RelaySettings("k:9092", "t", "store"), RunOptions(Path("checkpoint")))
    assert relay.settings.store == str(tmp_path / "store")
    assert relay.running.checkpoint == tmp_path / "checkpoint"


# -- schemes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uri", ["hdfs://name:8020/store", "http://host/store", "dbfs://store", "S3://bucket/store"])
def test_other_schemes_are_refused_with_what_to_write(uri: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"allowed: a path, file:///…, s3://bucket/…"):
        Place.of(uri)
    with pytest.raises(InvalidArgumentError, match=uri.partition(":")[0]):
        Store.open(uri)


def test_paths_and_file_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for uri in ("a b/c:d", f"{tmp_path}/a b/c:d", f"file://{tmp_path}/a%20b/c:d", f"file:{tmp_path}/a%20b/c:d"):
        assert Place.of(uri).uri == str(tmp_path / "a b" / "c:d")


# -- what Spark is told ------------------------------------------------------------------------------------------------


class FakeStream:
    """Takes any call of a stream's builder, and keeps its options."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}

    def option(self, name: str, value: Any) -> FakeStream:
        self.options[name] = value
        return self

    def __getattr__(self, name: str) -> Any:
        return self if name in ("readStream", "writeStream", "dataSource", "sparkContext") else self._call

    def _call(self, *_: Any, **__: Any) -> FakeStream:
        return self


def test_the_checkpoint_has_a_scheme(tmp_path: Path) -> None:
    """Without one it is where Hadoop's configuration says, and not the directory that was compared with the store."""
    stream = FakeStream()
    schedule.start_query(
        stream,  # type: ignore[arg-type]
        lambda *_: None,  # type: ignore[arg-type]
        flight="127.0.0.1:1",
        start_seq=0,
        trigger=schedule.Trigger(1, 1, 1),
        checkpoint=tmp_path / "check point",
        poll_ms=1,
    )
    assert stream.options["checkpointLocation"] == f"file://{tmp_path}/check%20point"


def test_executors_are_told_the_advertised_address(tmp_path: Path) -> None:
    config = ServerConfig(data=tmp_path, flight_advertised="broker.example:7611")
    parsed = schedule.parse(schedule_command(config, "127.0.0.1:7611", tmp_path / "checkpoint")[3:])
    assert (parsed.flight, parsed.flight_for_tasks) == ("127.0.0.1:7611", "broker.example:7611")
    parsed = schedule.parse(
        schedule_command(ServerConfig(data=tmp_path), "127.0.0.1:7611", tmp_path / "checkpoint")[3:]
    )
    assert parsed.flight_for_tasks == "127.0.0.1:7611"
    with pytest.raises(InvalidArgumentError, match="flight_advertised"):
        ServerConfig(flight_advertised="nowhere")
