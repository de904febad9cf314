"""Compile the protocol's ``.proto`` files: ``python -m tests.rocketmq.stubs``, which is ``make stubs``."""

from __future__ import annotations

import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.sources import ROOT

PROTOCOL = ROOT / "src/tarry/fronts/rocketmq/protocol"
COMPILED = PROTOCOL / "messages.binpb"
SOURCES = [f"apache/rocketmq/v2/{name}.proto" for name in ("definition", "service")]


def compiled() -> FileDescriptorSet:
    """What protoc makes of the ``.proto`` files.

    Raises:
        ModuleNotFoundError: grpcio-tools, which has a protoc, is not installed.
    """
    import grpc_tools
    from grpc_tools import protoc

    # protobuf's own files, which the protocol's import
    own = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / COMPILED.name
        failed = protoc.main(["protoc", f"-I{PROTOCOL}", f"-I{own}", f"--descriptor_set_out={out}", *SOURCES])
        assert not failed, f"protoc ended with {failed}"
        return FileDescriptorSet.FromString(out.read_bytes())


if __name__ == "__main__":
    COMPILED.write_bytes(compiled().SerializeToString(deterministic=True))
    print(f"{COMPILED.relative_to(ROOT)}: {COMPILED.stat().st_size:,} bytes")
