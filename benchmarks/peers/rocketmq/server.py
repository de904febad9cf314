"""A real RocketMQ 5.5.0 on one machine: name server, broker and proxy, in processes of their own, on free ports.

``python -m benchmarks.peers.rocketmq.server [TOPIC ...]`` fetches its jars into ``~/.cache/tarry``, runs one with these
topics of type DELAY and a group named ``bench`` until Ctrl-C, and prints its endpoint.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import workspace
from benchmarks.peers.rocketmq.maven import class_path
from benchmarks.peers.rocketmq.route import has_route
from tarry.fronts.rocketmq.classic.codes import RequestCode
from tarry.fronts.rocketmq.classic.frames import RemotingCommand, decode, encode
from tarry.spark.runtime.java import find_java_home

PROJECT = Path(__file__).with_name("server")
VERSION = "5.5.0"
TYPES = ("NORMAL", "DELAY", "FIFO", "TRANSACTION")
START_S_MAX, STOP_S_MAX, ADMIN_S_MAX, ROUTE_S_MAX = 300, 60, 300, 10

# Upstream's bin/runbroker.sh and bin/runserver.sh, but for the sizes: those are for machines with 32 GB, and of its
# regions of 16 MB a small heap has too few. Of Java 17, RocketMQ needs nothing opened.
_JAVA = ("-server", "-XX:+UseG1GC", "-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30")
_JAVA_MORE = ("-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow", "-XX:-UseLargePages")
_BROKER_JAVA = ("-XX:+AlwaysPreTouch", "-XX:MaxDirectMemorySize=2g")
_ADMIN_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOOPBACK = ("--add-opens", "java.base/java.net=ALL-UNNAMED", "--add-opens", "java.base/java.lang=ALL-UNNAMED")

# The order in which they are started, and the line each writes when it has.
_MAIN = {
    "namesrv": ("org.apache.rocketmq.namesrv.NamesrvStartup", "boot success"),
    "broker": ("org.apache.rocketmq.broker.BrokerStartup", "boot success"),
    "proxy": ("org.apache.rocketmq.proxy.ProxyStartup", "startup successfully"),
}
_ADMIN = "org.apache.rocketmq.tools.command.MQAdminStartup"


class RocketMQ:
    """One of each; :meth:`kill` and :meth:`start` as often as wanted, on the same directory and ports."""

    def __init__(
        self,
        directory: Path,
        *,
        sync_flush: bool = True,
        heap: str = "1g",
        broker: Mapping[str, str] | None = None,
        proxy: bool = True,
        hour_ms: int | None = None,
    ) -> None:
        """``sync_flush``: a send is acknowledged after its fsync. ``broker``: more of its settings. ``proxy``: whether
        there is one, for v5 clients. ``hour_ms``: how long the hours are at which the timer of RocksDB rewrites what is
        pending.
        """
        self.directory = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._java = str(find_java_home(directory) / "bin" / "java")
        self._class_path = class_path(PROJECT, f"rocketmq-{VERSION}")
        self._heap = heap
        self._hours = () if hour_ms is None else (f"-Dbench.hour.ms={hour_ms}",)
        self._topics: list[str] = []
        namesrv, proxy_port, remoting, replicas = _free_port(), _free_port(), _free_port(), _free_port()
        self._broker = _free_port(also=-2)  # the broker takes the port two below, too, for its "VIP channel"
        self.endpoint = f"127.0.0.1:{proxy_port}"
        self.name_server = f"127.0.0.1:{namesrv}"
        """For classic clients."""
        self._main = {name: main for name, main in _MAIN.items() if proxy or name != "proxy"}
        self._write("namesrv.properties", {"listenPort": namesrv})
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker",
            "namesrvAddr": f"127.0.0.1:{namesrv}",
            "listenPort": self._broker,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "haListenPort": replicas,
            "storePathRootDir": directory / "store",
            "mappedFileSizeCommitLog": 256 << 20,
            "flushDiskType": "SYNC_FLUSH" if sync_flush else "ASYNC_FLUSH",
            "timerWheelEnable": "true",
            "recallMessageEnable": "true",
            "autoCreateTopicEnable": "false",
            "autoCreateSubscriptionGroup": "false",
            # At 75 %, its standard, it deletes messages early on a disk that is full of something else.
            "diskMaxUsedSpaceRatio": 95,
        }
        self._write("broker.properties", settings | dict(broker or {}))
        of_proxy = {
            "rocketMQClusterName": "DefaultCluster",
            "proxyMode": "CLUSTER",
            "namesrvAddr": f"127.0.0.1:{namesrv}",
            "localServeAddr": "127.0.0.1",
            "grpcServerPort": proxy_port,
            "remotingListenPort": remoting,
            "useDelayLevel": False,
        }
        (directory / "rmq-proxy.json").write_text(json.dumps(of_proxy))

    def start(self) -> None:
        """Start what does not run, and wait until the proxy has the routes of all topics that were created here."""
        arguments = {
            "namesrv": ["-c", str(self.directory / "namesrv.properties")],
            "broker": ["-c", str(self.directory / "broker.properties")],
            "proxy": ["-pc", str(self.directory / "rmq-proxy.json")],
        }
        for name, (main, line) in self._main.items():
            if name not in self.processes:
                own = (*_BROKER_JAVA, *self._hours) if name == "broker" else ()
                heap = "256m" if name == "namesrv" else self._heap
                java = [f"-Xms{heap}", f"-Xmx{heap}", *_JAVA, *_JAVA_MORE, *own]
                self._start(name, [*self._command(*java, *_LOOPBACK), "Loopback", main, *arguments[name]], line)
        for topic in self._topics:
            self._wait_for_route(topic)

    def kill(self, number: int = signal.SIGKILL, *names: str) -> None:
        """End it, or the processes with these names, as a power failure would; with SIGTERM in good order."""
        # Backwards: a proxy whose broker has gone first waits for it in vain.
        for name in [n for n in reversed(_MAIN) if n in self.processes and (not names or n in names)]:
            process = self.processes.pop(name)
            process.send_signal(number)
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def create_topic(self, name: str, kind: str = "DELAY", *, queues: int = 8) -> None:
        """Create a topic for messages of one type, and wait until the proxy knows it.

        Raises:
            ValueError: there is no such type.
        """
        if kind not in TYPES:
            raise ValueError(f"type {kind!r} of topic {name} must be one of {', '.join(TYPES)}")
        number = str(queues)
        self._admin("updateTopic", "-t", name, "-r", number, "-w", number, "-a", f"+message.type={kind}")
        self._topics.append(name)
        self._wait_for_route(name)

    def create_group(self, name: str, *, ordered: bool = False) -> None:
        """Create a subscription group; ``ordered`` is for topics of type FIFO."""
        # From the oldest message: what becomes due before the group's first receive would be passed over.
        self._admin("updateSubGroup", "-g", name, "-o", str(ordered).lower(), "-m", "true")

    def _admin(self, command: str, *arguments: str) -> None:
        words = [command, "-b", f"127.0.0.1:{self._broker}", *arguments]
        done = subprocess.run(
            [*self._command(*_ADMIN_JAVA), _ADMIN, *words], capture_output=True, text=True, timeout=ADMIN_S_MAX
        )
        if " success" not in done.stdout:  # it ends with 0 whatever happened
            raise RuntimeError(f"mqadmin {' '.join(words)} failed: {(done.stdout + done.stderr)[-2000:]}")

    def _command(self, *java: str) -> list[str]:
        # Logs, what the name server remembers, and libraries that are unpacked: kill -9 would leave them.
        home = [f"-D{name}={self.directory}" for name in ("user.home", "rocketmq.home.dir", "java.io.tmpdir")]
        return [self._java, *java, *home, "-cp", self._class_path]

    def _start(self, name: str, command: list[str], line: str) -> None:
        path = self.directory / f"{name}.out"
        with path.open("wb") as out:
            # The pipe is for Loopback, which ends the process when this one is gone.
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=out, cwd=self.directory, start_new_session=True
            )
        self.processes[name] = process
        deadline = time.monotonic() + START_S_MAX
        while line not in path.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"RocketMQ's {name} has not started: {path.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)

    def _wait_for_route(self, topic: str) -> None:
        deadline = time.monotonic() + START_S_MAX
        while not (has_route(self.endpoint, topic) if "proxy" in self._main else self._has_classic_route(topic)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"RocketMQ's proxy has no route to topic {topic} after {START_S_MAX} s")
            time.sleep(0.1)

    def _has_classic_route(self, topic: str) -> bool:
        """Whether the name server knows the topic: 0 is SUCCESS."""
        host, _, port = self.name_server.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=ROUTE_S_MAX) as connection:
            connection.sendall(encode(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})))
            with connection.makefile("rb") as answers:
                length = answers.read(4)
                return decode(length + answers.read(int.from_bytes(length, "big"))).code == 0

    def _write(self, name: str, settings: Mapping[str, object]) -> None:
        (self.directory / name).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


@contextmanager
def rocketmq_server(
    *,
    sync_flush: bool = True,
    heap: str = "1g",
    broker: Mapping[str, str] | None = None,
    proxy: bool = True,
    hour_ms: int | None = None,
) -> Iterator[RocketMQ]:
    """A RocketMQ that runs, and is gone at the end with all its data; TARRY_BENCH_DIR chooses the disk."""
    with workspace() as directory:
        server = RocketMQ(directory, sync_flush=sync_flush, heap=heap, broker=broker, proxy=proxy, hour_ms=hour_ms)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _free_port(also: int = 0) -> int:
    """A port of the loopback interface that nobody has, nor the one that is ``also`` above it."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            if not also:
                return port
            try:
                other.bind(("127.0.0.1", port + also))
            except OSError:
                continue
            return port


def main(topics: list[str]) -> None:
    """Run one until Ctrl-C or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts what is in the background without the first
        signal.signal(number, signal.default_int_handler)
    try:
        with rocketmq_server() as server:
            for topic in topics:
                server.create_topic(topic)
            server.create_group("bench")
            print(server.endpoint, flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
