"""A proxy before a server of the S3 protocol, in a process of its own, that delays each request.

``python -m benchmarks.store_proxy UPSTREAM DELAY_MS [FILE]``: FILE gets a line for each request, when it comes: time
in ms, kind, target. Prints its address.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from tests.takeover.proxy import Faults, Proxy, Request

from benchmarks.harness import child


@contextmanager
def delayed(endpoint: str, delay_ms: float, trace: Path | None = None) -> Iterator[str]:
    """The address of a proxy before ``endpoint``; each request takes ``delay_ms`` longer."""
    files = [str(trace)] if trace else []
    process = child("store_proxy", endpoint.removeprefix("http://"), str(delay_ms), *files)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


async def _proxy(upstream: str, delay_ms: float, trace: Path | None = None) -> None:
    lines = trace.open("a", buffering=1) if trace else None

    def note(request: Request) -> str:
        if lines is not None:
            lines.write(f"{time.time_ns() / 1e6:.1f} {request.kind} {unquote(request.target)}\n")
        return ""

    proxy = Proxy(upstream, 1, Faults(delays_ms=(delay_ms,)), note)
    await proxy.start()
    print(proxy.address, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_proxy(sys.argv[1], float(sys.argv[2]), *map(Path, sys.argv[3:])))
