"""A real receiver of pushes on this machine: it notes what comes, and answers as a test wants."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


@dataclass
class Got:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes
    at_ms: int
    peer: tuple[str, int]

    @property
    def attempt(self) -> int:
        return int(self.headers["x-tarry-attempt"])


@dataclass
class Reply:
    """What is answered. ``body`` None: nothing, and the connection stays open without an answer until the end."""

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = b""
    act: Callable[[BaseHTTPRequestHandler], None] | None = None
    """Instead of an answer."""


Behave = Callable[[Got], Reply]


def ok(_: Got) -> Reply:
    return Reply()


class Receiver:
    """A server on 127.0.0.1, for as long as a ``with`` block."""

    def __init__(self, behave: Behave = ok, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.behave = behave
        self.got: list[Got] = []
        self.ending = threading.Event()
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                receiver.handle(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a connection that was cut

        self._server = Server(("127.0.0.1", port), Handler)
        if tls is not None:
            # The handshake is the handler's, in a thread of its own.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._scheme = "http" if tls is None else "https"
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/hook"

    @property
    def bodies(self) -> list[bytes]:
        with self._lock:
            return [got.body for got in self.got]

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        got = Got(handler.path, headers, body, time.time_ns() // 1_000_000, handler.client_address)
        with self._lock:
            self.got.append(got)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            self._answer(handler, self.behave(got))
        finally:
            with self._lock:
                self._at_once -= 1

    def _answer(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        if reply.act is not None:
            handler.close_connection = True
            reply.act(handler)
            return
        if reply.body is None:
            self.ending.wait(60)
            handler.close_connection = True
            return
        handler.send_response_only(reply.status)
        headers = {"Content-Length": str(len(reply.body))} if reply.status != 204 else {}
        for name, value in {**headers, **reply.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(reply.body)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def reset(handler: BaseHTTPRequestHandler) -> None:
    """Cut the connection with a RST."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
