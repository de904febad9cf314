"""``tarry serve`` as a process: ready line, signals, exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.crash.tools import World
from tests.ports import pair_of_ports
from tests.waiting import wait_until

from tarry.base.clock import SystemClock, TestClock
from tarry.base.stop_signals import StopSignals
from tarry.base.version import VERSION
from tarry.cli.exits import ExitCode
from tarry.cli.server import pipeline_status, reachable, run_front
from tarry.cli.wanted_fronts import unused_settings, wanted_fronts
from tarry.client import Client
from tarry.errors import UnavailableError
from tarry.fronts.kit.front import FrontServices, RunningFront
from tarry.fronts.registry import ServerConfig

Process = subprocess.Popen[str]


class Servers:
    """Starts broker processes in a directory; all are ended with the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: list[Process] = []

    def start(self, *options: str, code: str | None = None, umask: int = -1, **environment: str) -> Process:
        command = [
            sys.executable,
            "-c",
            code or "import sys; from tarry.cli.main import run; sys.exit(run(sys.argv[1:]))",
        ]
        process = subprocess.Popen(
            [*command, "serve", "--flight", "127.0.0.1:0", "--pipeline", "off", *options],
            cwd=self.directory,
            env={k: v for k, v in os.environ.items() if not k.startswith("TARRY_")} | environment,
            umask=umask,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    servers = Servers(tmp_path)
    yield servers
    for process in servers.processes:
        process.kill()
        process.communicate()


def ready(process: Process) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(r"tarry \d+\.\d+\.\d+ serving flight on (127\.0\.0\.1:\d+), data (\S+)\n", line)
    assert found, line + (process.communicate()[1] if not line else "")
    return found[1]


def end(process: Process) -> tuple[int, str]:
    _, log = process.communicate(timeout=60)
    return process.returncode, log


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.rest)])
def test_a_signal_stops_it_cleanly(servers: Servers, number: signal.Signals) -> None:
    process = servers.start("--data", "data")
    ready(process)
    process.send_signal(number)
    code, log = end(process)
    assert code == ExitCode.OK
    assert "Traceback" not in log
    assert "stopped" in log
    assert ready(servers.start("--data", "data"))


def test_its_life_is_told_to_systemd_and_in_lines_of_json(servers: Servers, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        process = servers.start(
            *("--data", "data", "--set", "log_format=json", "--set", "log_level=info,tarry.serve=debug"),
            NOTIFY_SOCKET=str(tmp_path / "notify"),
            WATCHDOG_USEC="1000",
        )
        address = ready(process)
        told = [manager.recv(1000).decode() for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        while (last := manager.recv(1000).decode()) == "WATCHDOG=1":
            pass
    assert told == [f"READY=1\nSTATUS=serving flight on {address}, data data", "WATCHDOG=1", "WATCHDOG=1"]
    assert last == "STOPPING=1\nSTATUS=stopping"
    code, log = end(process)
    assert code == ExitCode.OK
    lines = [json.loads(line) for line in log.splitlines()]
    said = [each["message"] for each in lines]
    assert f"tarry {VERSION}, process {process.pid}, serving flight on {address}, data data" in said
    assert any(text.startswith("recovered in ") for text in said)
    assert said[-1] == "stopped"
    assert {each["process"] for each in lines} == {str(process.pid)}
    assert {(each["logger"], each["level"]) for each in lines} >= {("tarry.serve", "debug"), ("tarry.serve", "info")}


@pytest.mark.rest
def test_what_was_sent_survives_kill_9(servers: Servers) -> None:
    from tarry.client import Client

    first = servers.start("--data", "data")
    with Client(ready(first)) as client:
        client.schedule("orders", b"x", due=946_684_800_000)
    first.kill()
    assert end(first)[0] == -signal.SIGKILL
    with Client(ready(servers.start("--data", "data"))) as client:
        [message] = client.receive("orders", group="g", wait=30)
        assert message.body == b"x"


@pytest.mark.parametrize("umask", [0, pytest.param(0o077, marks=pytest.mark.rest)])
def test_files_are_for_owner_and_group_whatever_the_umask(servers: Servers, tmp_path: Path, umask: int) -> None:
    from tarry.client import Client

    process = servers.start("--data", "data", umask=umask)
    with Client(ready(process)) as client:
        client.schedule("orders", b"x", delay="1h", key="k", id="i")
        client.cancel_key("orders", "k")
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == ExitCode.OK
    paths = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    modes = {(path.is_dir(), oct(path.stat().st_mode & 0o777)) for path in paths if path.name != "secret.key"}
    assert modes == {(True, "0o750"), (False, "0o640")}
    assert {path.parent.name for path in paths} >= {"registry", "store", "_delta_log", "intake", "ready", "acks"}


@pytest.mark.rest
def test_the_rocketmq_front_without_its_extra_says_what_to_install(servers: Servers) -> None:
    without = """
import sys
sys.modules["google.protobuf"] = None
from tarry.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
    code, log = end(servers.start("--data", "data", "--rocketmq", "127.0.0.1:0", code=without))
    assert code == ExitCode.FAILED
    assert log.splitlines()[-1].startswith(
        "tarry: not_found: the RocketMQ front needs the extra 'rocketmq': the module 'google.protobuf"
    )
    assert "pip install --find-links dist 'tarry[rocketmq]'" in log
    assert "Traceback" not in log


@pytest.mark.rest
def test_a_second_broker_on_the_directory_or_at_the_address_is_refused(servers: Servers) -> None:
    first = servers.start("--data", "data")
    address = ready(first)
    code, log = end(servers.start("--data", "data"))
    assert code == ExitCode.LOCKED
    assert re.fullmatch(rf"tarry: locked: /.*/data is in use .*\(process {first.pid}\).*\n", log), log
    code, log = end(servers.start("--data", "other", "--flight", address))
    assert code == ExitCode.UNAVAILABLE
    assert log.splitlines()[-1] == f"tarry: unavailable: cannot listen on {address}: Address already in use"


@pytest.mark.rest
def test_damage_is_exit_code_4_and_names_file_and_offset(servers: Servers, tmp_path: Path) -> None:
    from tarry.client import Client

    process = servers.start("--data", "data")
    with Client(ready(process)) as client:
        for _ in range(3):
            client.schedule("orders", b"x" * 100, delay="1h")
    process.send_signal(signal.SIGTERM)
    end(process)
    [path] = (tmp_path / "data" / "intake").glob("*.log")
    content = bytearray(path.read_bytes())
    content[200] ^= 0xFF
    path.write_bytes(content)
    code, log = end(servers.start("--data", "data"))
    assert code == ExitCode.CORRUPT
    assert log.count("\n") == 1
    assert log.startswith("tarry: corrupt: ")
    assert path.name in log
    assert path.read_bytes() == content


@pytest.mark.rest
def test_damage_of_the_store_that_is_met_while_serving_is_named_and_stops_nothing_else(
    servers: Servers, tmp_path: Path
) -> None:
    clock = TestClock(SystemClock().now_ms())
    world = World(tmp_path / "data", {"horizon_ms": 60_000}, clock)
    world.open()
    world.schedule("a", [3_600_000] * 10)
    world.pipeline_commits()
    world.b.close()
    [path] = (tmp_path / "data" / "store").rglob("*.parquet")
    content = bytearray(path.read_bytes())
    content[100] ^= 0xFF
    path.write_bytes(content)
    process = servers.start("--data", "data", "--set", "horizon_ms=2h")
    with Client(ready(process)) as client:
        wait_until(lambda: path.name in str(client.status()))
        client.schedule("b", b"goes on")
        assert [message.body for message in client.receive("b", group="g", wait=30)] == [b"goes on"]
    process.send_signal(signal.SIGTERM)
    code, log = end(process)
    assert code == ExitCode.OK, log
    assert path.name in log
    assert path.read_bytes() == content


def test_all_ports_are_said_and_what_nobody_knows_is_a_warning(servers: Servers) -> None:
    """Ports of metrics and of old clients, which are served until the end; a variable; and pandas, which is not
    loaded.
    """
    port = pair_of_ports()
    options = ("--metrics", "127.0.0.1:0", "--remoting", f"127.0.0.1:{port}")
    process = servers.start("--data", "data", *options, TARRY_PORT="tcp://10.0.0.1:7611", TARRY_HORIZN_MS="5")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert f"remoting on 127.0.0.1:{port}, remoting vip on 127.0.0.1:{port - 2}" in line
    found = re.fullmatch(r"tarry \S+ serving flight on \S+, .*metrics on (127\.0\.0\.1:\d+).*, data data\n", line)
    assert found, line
    with urllib.request.urlopen(f"http://{found[1]}/metrics", timeout=30) as answer:
        assert b"\ntarry_serving 1.0\n" in answer.read()
    socket.create_connection(("127.0.0.1", port - 2), 30).close()
    libraries = Path(f"/proc/{process.pid}/maps")
    if libraries.exists():
        assert "/pyarrow/" in libraries.read_text()
        assert "/pandas/" not in libraries.read_text()
    process.send_signal(signal.SIGTERM)
    code, log = end(process)
    assert code == ExitCode.OK
    [warning] = [line for line in log.splitlines() if "WARNING" in line]
    assert "TARRY_HORIZN_MS in the environment is no setting" in warning
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://{found[1]}/metrics", timeout=30)


@pytest.mark.rest
def test_a_failed_disk_is_exit_code_7(servers: Servers) -> None:
    failing = """
import sys, threading
from tarry.broker import Broker
from tarry.cli.main import run
opened = Broker.open
def then_fail(config, **options):
    broker = opened(config, **options)
    threading.Timer(0.1, broker.components.health.fail, [OSError(5, "Input/output error")]).start()
    return broker
Broker.open = then_fail
sys.exit(run(sys.argv[1:]))
"""
    process = servers.start("--data", "data", code=failing)
    ready(process)
    code, log = end(process)
    assert code == ExitCode.FATAL
    assert log.splitlines()[-1].startswith("tarry: fatal: ")
    assert "Input/output error" in log.splitlines()[-1]


@pytest.mark.rest
def test_a_directory_that_another_one_has_taken_is_exit_code_10(servers: Servers, tmp_path: Path) -> None:
    data = tmp_path / "data"
    process = servers.start("--data", str(data))
    ready(process)
    (data / "lock").write_text("1 another-machine 7\n")
    code, log = end(process)
    assert code == ExitCode.OWNERSHIP_LOST
    assert log.splitlines()[-1].startswith(f"tarry: ownership_lost: {data} is another broker's now: ")


@pytest.mark.rest
def test_the_second_signal_ends_it_at_once(servers: Servers) -> None:
    stuck = """
import sys, threading
from tarry.broker import Broker
from tarry.cli.main import run
def close(self):
    print("closing", flush=True)
    threading.Event().wait()
Broker.close = close
sys.exit(run(sys.argv[1:]))
"""
    process = servers.start("--data", "data", code=stuck)
    ready(process)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "closing\n"
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == ExitCode.FAILED


def test_a_signal_that_came_before_anybody_waited_is_not_lost() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as stop:
        assert not stop.wait(0)
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(0)
        assert stop.wait(0)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("listening", "address"),
    [
        ("127.0.0.1:7", "127.0.0.1:7"),
        ("0.0.0.0:7", "127.0.0.1:7"),
        ("[::]:7", "[::1]:7"),
        ("example.org:7", "example.org:7"),
    ],
)
def test_where_the_pipeline_reaches_the_broker(listening: str, address: str) -> None:
    assert reachable(listening) == address


def test_the_pipeline_that_does_not_run_is_not_shown_as_running() -> None:
    assert pipeline_status({"state": "running", "pid": 5}) == {"supervisor": {"state": "running", "pid": 5}}
    assert pipeline_status({"state": "waiting"}) == {"supervisor": {"state": "waiting"}, "state": "waiting"}


def test_a_port_that_another_front_has_is_named(tmp_path: Path) -> None:
    """The port for old clients is in no setting, so nobody would think of it."""

    class Remoting:
        addresses = {"remoting": "127.0.0.1:1885", "remoting vip": "127.0.0.1:1883"}

    def refuse(_: FrontServices) -> RunningFront:
        raise UnavailableError("cannot listen on 127.0.0.1:1883: Address already in use")

    running: dict[str, Any] = {"remoting": Remoting()}
    front: Any = SimpleNamespace(name="mqtt", run=refuse)
    text = "mqtt: cannot listen .*; remoting vip listens on 127.0.0.1:1883 already; allowed: another port or remoting_v"
    for address, said in (("127.0.0.1:1883", text), ("127.0.0.1:1885", "another port$"), ("127.0.0.1:1", "in use$")):
        services: Any = SimpleNamespace(address=address)
        with pytest.raises(UnavailableError, match=said):
            run_front(front, services, running)


def test_settings_of_fronts_that_are_off_are_told(caplog: pytest.LogCaptureFixture) -> None:
    keys = {"rocketmq_keys": "keys", "http_access": "open", "http_proxies": "off"}
    off = ServerConfig(data="data", **keys)
    assert unused_settings(off) == {"rocketmq_keys": ["rocketmq", "remoting"], "http_access": ["http"]}
    assert unused_settings(ServerConfig(data="data", remoting="127.0.0.1:0", http="127.0.0.1:0", **keys)) == {}
    with caplog.at_level("WARNING", "tarry.serve"):
        wanted_fronts(off)
    assert "rocketmq_keys is set, and does nothing: rocketmq or remoting has no address" in caplog.text
    assert unused_settings(ServerConfig(data="data")) == {}, "no default is told"
