"""A second address of a broker, by which only executors know it; and a gate in it, which holds them in the middle of a
task for as long as a test wants.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from tests.waiting import wait_until

CHUNK_BYTES = 1 << 16


class Forwarder:
    """Forwards connections once it has been told where to. Use it as a context manager.

    ``on_request`` is called with each piece that comes from a caller, before it goes on.
    """

    def __init__(self, host: str = "127.0.0.2", on_request: Callable[[bytes], None] = lambda _: None) -> None:
        self._on_request = on_request
        self._target = ("", 0)
        self._listener = socket.create_server((host, 0))
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self.connections = 0
        """So many came until now."""
        self._gate = threading.Event()
        self._gate.set()
        self._held: set[int] = set()
        self._open: set[socket.socket] = set()

    def __enter__(self) -> Forwarder:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._gate.set()
        for each in (self._listener, *tuple(self._open)):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def forward_to(self, target: str) -> None:
        """To HOST:PORT."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Nothing gets through in the block."""
        self._gate.clear()
        try:
            yield
        finally:
            self._held.clear()
            self._gate.set()

    def held_task(self, timeout_s: float = 180.0) -> psutil.Process:
        """A Python worker of an executor that waits at the gate, once there is one."""
        found: list[psutil.Process] = []

        def look() -> bool:
            mine = self._listener.getsockname()[1]
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    for at in process.net_connections("tcp"):
                        if at.raddr and at.raddr.port == mine and at.laddr.port in self._held:
                            found.append(process)
            return bool(found)

        wait_until(lambda: self._held, timeout_s, "no task came to the gate")
        wait_until(look, 10, lambda: self._held)
        return found[0]

    # -- inside ------------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                near, peer = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(near)
            threading.Thread(target=self._forward, args=(near, peer[1]), daemon=True).start()

    def _forward(self, near: socket.socket, port: int) -> None:
        if not self._gate.is_set():
            self._held.add(port)
            self._gate.wait()
        try:
            far = socket.create_connection(self._target)
        except OSError:
            near.close()
            return
        self._open.add(far)
        back = threading.Thread(target=_pump, args=(far, near), daemon=True)
        back.start()
        _pump(near, far, self._on_request)
        back.join()
        for each in (near, far):
            each.close()
            self._open.discard(each)


def _pump(source: socket.socket, sink: socket.socket, on_piece: Callable[[bytes], None] = lambda _: None) -> None:
    with suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            on_piece(data)
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
