"""A small collector: takes OTLP over HTTP on a free port of this machine, and keeps the spans."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Receiver:
    """Spans that came, and the resources and headers that they came with."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: set[str] = set()
        self.status = 200
        """What it answers with."""
        self.gate = threading.Event()
        """It answers when this is set."""
        self.gate.set()
        self.changed = threading.Condition()
        self.endpoint = ""

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        self.gate.wait(60)
        request = ExportTraceServiceRequest.FromString(body)
        with self.changed:
            self.paths.add(path)
            self.headers.append(headers)
            if self.status == 200:
                for resource in request.resource_spans:
                    self.resources.append(attributes_of(resource.resource))
                    self.spans += [span for scope in resource.scope_spans for span in scope.spans]
            self.changed.notify_all()
        return self.status

    def wait(self, count: int) -> list[Any]:
        """Wait until so many spans have come; return all, by their begin."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.spans) >= count, 30), [each.name for each in self.spans]
            return sorted(self.spans, key=lambda each: each.start_time_unix_nano)


def attributes_of(of: Any) -> dict[str, Any]:
    """Return the attributes of a span or a resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Have one while the block lasts."""
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            status = kept.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        kept.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield kept
        finally:
            kept.gate.set()
            server.shutdown()
            thread.join()
