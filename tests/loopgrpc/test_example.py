"""The example runs as it stands, and the README shows it as it is."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

import loopgrpc
from loopgrpc import Unary
from tests.loopgrpc.serving import serving
from tests.sources import ROOT

EXAMPLE = ROOT / "examples" / "loopgrpc_hello.py"
README = ROOT / "packages" / "loopgrpc" / "README.md"


@pytest.fixture
def example() -> Iterator[tuple[grpc.Channel, subprocess.Popen[str]]]:
    process = subprocess.Popen([sys.executable, EXAMPLE, "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        with grpc.insecure_channel(address) as channel:
            yield channel, process
    finally:
        process.kill()
        process.communicate()


def test_the_example_answers_and_stops(example: tuple[grpc.Channel, subprocess.Popen[str]]) -> None:
    channel, process = example
    say_hello = channel.unary_unary("/hello.Greeter/SayHello", StringValue.SerializeToString, StringValue.FromString)
    assert say_hello(StringValue(value="Ada")).value == "Hello, Ada!"
    with pytest.raises(grpc.RpcError) as error:
        say_hello(StringValue())
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    count_down = channel.unary_stream("/hello.Greeter/CountDown", Int32Value.SerializeToString, Int32Value.FromString)
    assert [number.value for number in count_down(Int32Value(value=3))] == [3, 2, 1]
    process.send_signal(signal.SIGINT)
    process.wait(20)


def test_the_readme_shows_the_example() -> None:
    code = EXAMPLE.read_text().split('"""', 2)[2].strip()
    assert f"```python\n{code}\n```" in README.read_text()


async def test_stubs_may_be_of_any_proto() -> None:
    """A message that is declared at run time, as protoc's code does it."""
    file = descriptor_pb2.FileDescriptorProto(name="point.proto", package="test", syntax="proto3")
    declared = file.message_type.add(name="Point")
    for number, name in enumerate(("x", "y"), start=1):
        declared.field.add(name=name, number=number, type="TYPE_SINT64", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    point = message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Point"))

    def mirror(data: bytes, call: loopgrpc.Call) -> bytes:
        request = point.FromString(data)
        return point(x=-request.x, y=-request.y).SerializeToString()

    async with (
        serving(handlers={"/test.Geometry/Mirror": Unary(mirror)}) as (server, _),
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        method = channel.unary_unary("/test.Geometry/Mirror", point.SerializeToString, point.FromString)
        assert await method(point(x=3, y=-4)) == point(x=-3, y=4)
