"""The HTTP server beside uvicorn and granian: the same handler on each, which answers a PUT with the same few bytes.

lmstfy's Go client publishes to each in turn, 64 connections. uvicorn and granian are no dependencies:
``pip install uvicorn granian``, then ``python -m benchmarks.http_server [--count N] [--rounds N]``.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import psutil

from benchmarks.peers.lmstfy.client import Place, run
from benchmarks.peers.lmstfy.server import NAMESPACE, free_port, wait_for_port

BODY = b'{"job_id":"01M841TBKR00000000000062DE","msg":"published"}'
TYPE = (b"content-type", b"application/json; charset=utf-8")
SERVERS = ("ours, without a task", "ours, a task a request", "ours, ASGI", "uvicorn", "granian, ASGI", "granian, RSGI")


async def app(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    """As an ASGI application."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    headers = [TYPE, (b"content-length", b"%d" % len(BODY))]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


async def rsgi(scope: Any, protocol: Any) -> None:
    """As granian's own kind of application."""
    await protocol()
    protocol.response_bytes(201, [(TYPE[0].decode(), TYPE[1].decode())], BODY)


async def _ours(kind: str, port: int) -> None:
    from loopgrpc import UnreadBytes
    from tarry.base.clock import SystemClock
    from tarry.base.descriptors import ConnectionLimits
    from tarry.fronts.http.exchange import HttpApplication, HttpRequest, HttpResponse
    from tarry.fronts.http.server.asgi import asgi
    from tarry.fronts.http.server.server import BACKLOG, HttpServer
    from tarry.fronts.kit.listening import listen_on

    answer = HttpResponse(201, BODY, (TYPE,))

    async def handle(request: HttpRequest) -> None:
        await request.read(1 << 20)
        request.answer(answer)

    def handle_at_once(request: HttpRequest) -> None:
        request.whole()
        request.answer(answer)

    applications = (HttpApplication(handle_at_once), HttpApplication(handle, whole=False), asgi(app))
    served = applications[SERVERS.index(kind)]
    unread, loop = UnreadBytes(), asyncio.get_running_loop()
    server = HttpServer(loop, SystemClock(), served, {}, ConnectionLimits(), unread)
    await server.listen(listen_on("127.0.0.1", port, backlog=BACKLOG))
    await asyncio.Event().wait()


def serve(kind: str, port: int) -> None:
    """Run one of :data:`SERVERS`."""
    if kind == "uvicorn":
        import uvicorn

        uvicorn.run(app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", access_log=False)
    elif kind.startswith("granian"):
        from granian.server.embed import Server  # type: ignore[import-not-found,unused-ignore]

        target, interface = (rsgi, "rsgi") if kind.endswith("RSGI") else (app, "asgi")
        import uvloop

        uvloop.run(Server(target, address="127.0.0.1", port=port, interface=interface).serve())
    else:
        import uvloop

        uvloop.run(_ours(kind, port))


def measure(kind: str, count: int) -> tuple[float, float]:
    """Requests a second, and microseconds of processor time for each."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.http_server", "--serve", kind, "--port", str(port)])
    try:
        wait_for_port(port)

        def cpu_s() -> float:
            times = psutil.Process(process.pid).cpu_times()
            return times.user + times.system

        found = run("publish", Place("127.0.0.1", port, NAMESPACE, "t" * 32), "q", meter=cpu_s, count=count)
        return found["per_s"], found["spent"] / found["calls"] * 1e6
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Measure all, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", choices=SERVERS)
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.port)
        return
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(given.rounds):
        for kind in SERVERS:
            found.setdefault(kind, []).append(measure(kind, given.count))
    for kind, results in found.items():
        rates, costs = zip(*results, strict=True)
        print(f"{kind:24} {statistics.median(rates):>9,.0f} requests/s  {statistics.median(costs):>6.1f} µs each")


if __name__ == "__main__":
    main()
