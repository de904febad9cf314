"""RabbitMQ, a broker and a bridge, each in processes of its own, which can be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from tests.ports import free_port
from tests.rabbitmq.server import RabbitServer
from tests.waiting import wait_until


class Program:
    """A command of Tarry's that runs; :meth:`kill` and :meth:`start` as often as one likes."""

    def __init__(self, log: Path, *words: str, module: Sequence[str] = ("tarry",)) -> None:
        """Start it; ``module``: what Python runs, with words before the command's."""
        self._log, self._words = log, (*module, *words)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", *self._words]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9, and wait for its end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait until it ends by itself; the exit code."""
        assert self._process is not None
        return self._process.wait(90)

    @property
    def said(self) -> str:
        return self._log.read_text()


class Bridged:
    """All three; what is published to ``orders.delayed`` goes to ``orders``."""

    def __init__(
        self,
        directory: Path,
        rabbit: RabbitServer,
        *more: str,
        settings: Sequence[str] = (),
        sync_s: float = 0.0,
    ) -> None:
        """Start a broker with more ``settings``, and a bridge with ``more`` options.

        ``sync_s``: seconds that each sync of the broker takes besides.
        """
        self.rabbit, self.endpoint = rabbit, f"127.0.0.1:{free_port()}"
        self.broker = Program(
            directory / "broker.log", "serve", "--data", str(directory / "data"), "--flight", self.endpoint,
            "--pipeline", "off",
            *chain.from_iterable(("--set", each) for each in ("push=off", "disk_free_bytes_min=0", *settings)),
            module=("tests.rabbitmq.slow_disk", str(sync_s)) if sync_s else ("tarry",),
        )  # fmt: skip
        self.bridge = Program(
            directory / "bridge.log", "bridge", "rabbitmq", "--url", rabbit.url, "--endpoint", self.endpoint,
            "--exchange", "orders.delayed=orders", *more,
        )  # fmt: skip

    def until_connected(self) -> None:
        """Wait until the bridge has its exchanges and queues, and takes from them."""
        wait_until(lambda: "connected to RabbitMQ" in self.bridge.said, 60, lambda: self.bridge.said)

    def end(self) -> None:
        for each in (self.bridge, self.broker):
            each.kill()


@contextmanager
def bridged(
    directory: Path, rabbit: RabbitServer, *more: str, settings: Sequence[str] = (), sync_s: float = 0.0
) -> Iterator[Bridged]:
    found = Bridged(directory, rabbit, *more, settings=settings, sync_s=sync_s)
    try:
        wait_until(lambda: "serving flight" in found.broker.said)
        yield found
    finally:
        found.end()
