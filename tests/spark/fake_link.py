"""The broker's side of the link, as small as it can be: for tests of what Spark asks."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from tarry.base.errors import TarryError
from tarry.link.frames import FrameKind, decode_rows, error_frame, frame
from tarry.message.columns import stream_bytes
from tests.link.raw_client import read_frame


class RowsAnswer(NamedTuple):
    """The answer to a ticket."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


class FakeLink:
    """Listens from the constructor on, and answers each connection in a thread."""

    def __init__(self) -> None:
        link = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                link._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Connection)
        self.port: int = self._server.server_address[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def shutdown(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def call(self, op: str, body: dict[str, Any]) -> dict[str, Any] | RowsAnswer:
        """Answer an operation. Any thread."""
        raise NotImplementedError

    def stage(self, number: int, rows: pa.Table) -> dict[str, Any]:
        """Answer a stream of rows for an attempt. Any thread."""
        raise NotImplementedError

    def _serve(self, connection: Any) -> None:
        staged: dict[int, tuple[int, list[pa.Table]]] = {}
        while True:
            try:
                kind, number, payload = read_frame(connection)
            except (OSError, EOFError):
                return
            try:
                match kind:
                    case FrameKind.HELLO:
                        answer = frame(FrameKind.WELCOME, 0, b"{}")
                    case FrameKind.CALL:
                        answer = self._answer(number, json.loads(payload))
                    case FrameKind.STAGE:
                        staged[number] = json.loads(payload)["number"], []
                        continue
                    case FrameKind.PART if payload:
                        staged[number][1].append(decode_rows(memoryview(payload)))
                        continue
                    case FrameKind.PART:
                        attempt, parts = staged.pop(number)
                        said = self.stage(attempt, pa.concat_tables(parts))
                        answer = frame(FrameKind.RESULT, number, json.dumps(said).encode())
                    case _:
                        raise AssertionError(f"frame of kind {kind}")
            except TarryError as error:
                answer = error_frame(number, error)
            connection.sendall(b"".join(answer))

    def _answer(self, number: int, body: dict[str, Any]) -> list[Any]:
        answer = self.call(body.pop("op"), body)
        if isinstance(answer, RowsAnswer):
            return frame(FrameKind.ROWS, number, stream_bytes(answer.schema, answer.batches))
        return frame(FrameKind.RESULT, number, json.dumps(answer).encode())
