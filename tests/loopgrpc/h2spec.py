"""``make h2spec``: the whole of h2spec in strict mode against the gRPC server, in the clear and over TLS.

h2spec asks with GET and with POST of no content-type; the server answers 405 and 415 with a short text, which is enough
for every test of windows and states.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from loopgrpc import GrpcServer, Unary
from tests.loopgrpc.certificates import make_certificate

SOURCE = "github.com/summerwind/h2spec/cmd/h2spec@latest"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tarry" / "bin"


def h2spec() -> Path:
    """The program; built with Go where it is not there yet."""
    program = CACHE / "h2spec"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        print(f"building {SOURCE} into {CACHE}", file=sys.stderr)
        subprocess.run(["go", "install", SOURCE], check=True, env={**os.environ, "GOBIN": str(CACHE)})
    return program


async def check(*options: str, tls: bool, directory: Path) -> int:
    """Run it once; its exit code."""
    context = make_certificate(directory).server_context() if tls else None
    server = GrpcServer({"/test.Test/Echo": Unary(lambda message, call: message)}, "127.0.0.1", 0, tls=context)
    await server.start()
    arguments = ["-S", "-h", "127.0.0.1", "-p", str(server.port), *(["-t", "-k"] if tls else []), *options]
    print("h2spec", *arguments, flush=True)
    process = await asyncio.create_subprocess_exec(h2spec(), *arguments)
    code = await process.wait()
    await server.stop(0)
    return code


def main() -> int:
    h2spec()
    with tempfile.TemporaryDirectory() as directory:
        return max([asyncio.run(check(*sys.argv[1:], tls=tls, directory=Path(directory))) for tls in (False, True)])


if __name__ == "__main__":
    raise SystemExit(main())
