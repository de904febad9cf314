"""Small HTTP server for ``GET /metrics``: one request a connection, few at a time, no long waits.

A client that does not finish its request keeps nobody out: where all places are taken, the one goes that has been
asking for longest.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, cast
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, choose_encoder, generate_latest

from tarry.api.operation import Caller
from tarry.base.descriptors import lacks_descriptor
from tarry.base.endpoint import parse_address
from tarry.base.errors import UnavailableError
from tarry.base.version import VERSION
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.metrics.collector import BrokerCollector

log = logging.getLogger(__name__)

STOP_LOOK_S = 0.05
"""Seconds between checks for the end."""
CONNECTIONS_MAX = 8
"""Connections at a time.

Of more, the oldest without a complete request is closed; while all are being answered, the new one.
"""
PLACE_S = 1.0
"""Seconds that a new connection waits for the place of one closed for it."""
NO_DESCRIPTOR_S = 0.1
"""Seconds in which nothing is accepted after a lack of descriptors: the connection waits."""
TIMEOUT_S = 5.0
"""Seconds that a client may take for a part of its request."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = f"tarry/{VERSION}"
    sys_version = ""
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _refuse(self) -> None:
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, b"allowed: GET, HEAD\n", headers={"Allow": "GET, HEAD"})

    def __getattr__(self, name: str) -> Any:
        # The base class looks for a method called after that of the request.
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def parse_request(self) -> bool:
        """Parse the request after its first line has come; its headers follow."""
        complete = super().parse_request()
        cast(_Server, self.server).on_request(self.connection)
        return complete

    def _answer(self, *, with_body: bool) -> None:
        if urlsplit(self.path).path != "/metrics":
            self._send(HTTPStatus.NOT_FOUND, b"there is only /metrics\n", with_body=with_body)
            return
        try:
            body, kind = self._metrics()
        except Exception:
            log.exception("reading the metrics failed")
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the broker's log\n", with_body=with_body)
            return
        self._send(HTTPStatus.OK, body, headers={"Content-Type": kind}, with_body=with_body)

    def _metrics(self) -> tuple[bytes, str]:
        registry = cast(_Server, self.server).registry
        try:
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
        except (ValueError, TypeError):  # a version that is none
            encode, kind = generate_latest, CONTENT_TYPE_LATEST
        return encode(registry), kind

    def _send(
        self, status: HTTPStatus, body: bytes, *, headers: dict[str, str] | None = None, with_body: bool = True
    ) -> None:
        self.close_connection = True
        self.send_response(status)
        fixed = {"Content-Length": str(len(body)), "Connection": "close"}
        for name, value in {"Content-Type": "text/plain; charset=utf-8", **(headers or {}), **fixed}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s: %s", self.address_string(), format % args)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, *_, address = addresses[0]
        self.registry = registry
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._asking: dict[Any, None] = {}
        """Connections whose request is not complete, the oldest first."""
        self._lock = threading.Lock()
        super().__init__(cast(tuple[str, int], address), _Handler)

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError as error:
            if lacks_descriptor(error):
                time.sleep(NO_DESCRIPTOR_S)  # it would be tried again at once
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False) or (self._end_oldest() and self._free.acquire(timeout=PLACE_S)):
            with self._lock:
                self._asking[request] = None
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def on_request(self, request: Any) -> None:
        """Note that the request is complete, or that the connection ends."""
        with self._lock:
            self._asking.pop(request, None)

    def _end_oldest(self) -> bool:
        """Close the connection that has been asking for longest; whether there was one."""
        with self._lock:
            oldest = next(iter(self._asking), None)
            if oldest is None:
                return False
            del self._asking[oldest]
            with suppress(OSError):  # its client has closed it
                oldest.shutdown(socket.SHUT_RDWR)
            return True

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.on_request(request)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a connection from %s failed", client_address, exc_info=True)


class MetricsFront:
    """Serves until :meth:`stop`, which comes before the broker is closed."""

    def __init__(self, server: _Server, host: str) -> None:
        self._server = server
        self.address = f"{host}:{server.server_address[1]}"
        self._thread = threading.Thread(
            target=server.serve_forever, args=(STOP_LOOK_S,), name="tarry-metrics", daemon=True
        )
        self._thread.start()

    @classmethod
    def start(cls, broker: Caller, address: str) -> MetricsFront:
        """Serve ``broker`` on ``"HOST:PORT"``; port 0 takes a free one, see :attr:`address`.

        Raises:
            InvalidArgumentError: no address. UnavailableError: it cannot be listened on; the text says why.
        """
        host, port = parse_address(address)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(BrokerCollector(broker))
        ProcessCollector(registry=registry)
        try:
            return cls(_Server(host.strip("[]"), port, registry), host)
        except OSError as error:
            raise UnavailableError(f"cannot listen on {address}: {error.strerror or error}") from error

    @property
    def addresses(self) -> Mapping[str, str]:
        """The one address, by the setting's name."""
        return {"metrics": self.address}

    def stop(self, grace_s: float = 0.0) -> None:
        """Accept no more connections; requests that are being answered are answered, whatever ``grace_s`` is."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsFront:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(services: FrontServices) -> MetricsFront:
    """Start the front for ``tarry serve``."""
    return MetricsFront.start(services.broker, services.address)
