"""A gRPC server with two methods. Run it, and call ``hello.Greeter`` on port 50051 with any gRPC client.

The messages are those that come with protobuf; stubs that protoc made from a .proto file of yours work the same way.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from loopgrpc import Call, GrpcError, GrpcServer, Handler, ServerStream, StatusCode, Unary


def say_hello(data: bytes, call: Call) -> bytes:
    name = StringValue.FromString(data).value
    if not name:
        raise GrpcError(StatusCode.INVALID_ARGUMENT, "whom to greet?")
    return StringValue(value=f"Hello, {name}!").SerializeToString()


async def count_down(data: bytes, call: Call) -> AsyncIterator[bytes]:
    for number in range(Int32Value.FromString(data).value, 0, -1):
        yield Int32Value(value=number).SerializeToString()


async def main(port: int) -> None:
    methods: dict[str, Handler] = {
        "/hello.Greeter/SayHello": Unary(say_hello),
        "/hello.Greeter/CountDown": ServerStream(count_down),
    }
    server = GrpcServer(methods, "127.0.0.1", port)
    await server.start()
    print(f"listening on 127.0.0.1:{server.port}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop(grace_s=5.0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50051))
