"""A server of Google Cloud Storage: fake-gcs-server, built by `make object-stores`, behind Google's XML requests.

It speaks Google's JSON requests alone, and of the XML ones, which obstore sends, only those that read. So a front puts
writes into the other form, and gives answers of errors the bodies that Google documents. Objects and their generations
are the server's; the form of the answers to writes is this front's, not Google's.
"""

from __future__ import annotations

import http.client
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.engines.programs import built, running
from tests.ports import free_port

SOURCE = "github.com/fsouza/fake-gcs-server@latest"
BUCKET = "tarry-backups"
TOKEN = "right"
_CODES = {401: "AuthenticationRequired", 412: "PreconditionFailed"}


class Answered(NamedTuple):
    """An answer, of the server or of the front."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


@contextmanager
def served(directory: Path) -> Iterator[dict[str, str]]:
    """A server with one bucket: what a command's environment has for it."""
    path, port = built(SOURCE, "TARRY_BUILD_CLOUDS"), free_port()
    (directory / BUCKET).mkdir(parents=True)
    command = [path, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    with running([*command, "-filesystem-root", directory], port), _Front(port) as front:
        thread = threading.Thread(target=front.serve_forever)
        thread.start()
        try:
            yield {
                "GOOGLE_BASE_URL": f"http://127.0.0.1:{front.server_address[1]}",
                "GOOGLE_BEARER_TOKEN": TOKEN,
                "GOOGLE_ALLOW_HTTP": "true",
            }
        finally:
            front.shutdown()
            thread.join()


class _Front(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.port = port
        self.parts: dict[str, dict[int, bytes]] = {}
        """Of uploads that are under way."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # of a client that was killed, or has read enough
            super().handle_error(request, client_address)


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Front

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        answer = self._answer(body)
        if answer.status >= 400 and not answer.body.startswith(b"<Error>"):
            code = _CODES.get(answer.status, "InternalError")
            answer = Answered(answer.status, f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode())
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in answer.headers):
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the library calls them so

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, body: bytes) -> Answered:
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return Answered(401)
        parts = urlsplit(self.path)
        bucket, _, key = parts.path[1:].partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if self._ask("GET", f"/storage/v1/b/{bucket}").status == 404:
            return _absent("NoSuchBucket")
        if self.command in ("GET", "HEAD"):
            passed = {name: value for name, value in self.headers.items() if name.lower() == "range"}
            answer = self._ask(self.command, self.path, headers=passed)
            return _absent("NoSuchKey") if answer.status == 404 else answer
        if self.command == "DELETE" and "uploadId" not in query:
            deleted = self._ask("DELETE", f"/storage/v1/b/{bucket}/o/{key}")
            return _absent("NoSuchKey") if deleted.status == 404 else Answered(204)
        return self._write(bucket, unquote(key), query, body)

    def _write(self, bucket: str, key: str, query: dict[str, str], body: bytes) -> Answered:
        uploads = self.server.parts
        if "uploads" in query:
            upload = token_hex(8)
            uploads[upload] = {}
            return Answered(200, _xml("InitiateMultipartUploadResult", Bucket=bucket, Key=key, UploadId=upload))
        if "uploadId" not in query:
            return self._create(bucket, key, body, self.headers["x-goog-if-generation-match"])
        if query["uploadId"] not in uploads:
            return _absent("NoSuchUpload")
        if "partNumber" in query:
            uploads[query["uploadId"]][int(query["partNumber"])] = body
            return Answered(200, headers=(("ETag", f'"{query["partNumber"]}"'),))
        there = uploads.pop(query["uploadId"])
        if self.command == "DELETE":
            return Answered(204)
        named = [int(number) for number in re.findall(rb"<PartNumber>(\d+)<", body)]
        created = self._create(bucket, key, b"".join(there[number] for number in named), None)
        if created.status != 200:
            return created
        return Answered(200, _xml("CompleteMultipartUploadResult", Bucket=bucket, Key=key, ETag=created.headers[0][1]))

    def _create(self, bucket: str, key: str, body: bytes, generation: str | None) -> Answered:
        condition = "" if generation is None else f"&ifGenerationMatch={generation}"
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(key, safe='')}{condition}"
        written = self._ask("POST", path, body, {"Content-Type": "application/octet-stream"})
        return Answered(200, headers=(("ETag", '"1"'),)) if written.status == 200 else written

    def _ask(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answered:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
        connection.request(method, path, body, {**(headers or {}), "Host": f"127.0.0.1:{self.server.port}"})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        kept = {"etag", "content-range", "last-modified", "content-length" if method == "HEAD" else ""}
        return Answered(
            answer.status,
            content,
            tuple((name, value) for name, value in answer.getheaders() if name.lower() in kept),
        )


def _xml(root: str, **fields: str) -> bytes:
    return f"<{root}>{''.join(f'<{name}>{value}</{name}>' for name, value in fields.items())}</{root}>".encode()


def _absent(code: str) -> Answered:
    return Answered(404, f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode())
