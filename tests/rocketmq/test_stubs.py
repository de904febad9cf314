"""The protocol's classes: made of its ``.proto`` files, and apart from those of the official client."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.rocketmq.stubs import COMPILED, PROTOCOL, SOURCES, compiled
from tests.sources import PYTHON_PATH


@pytest.mark.skipif(find_spec("grpc_tools") is None, reason="grpcio-tools is not installed")
def test_they_are_what_protoc_makes_of_the_sources() -> None:
    assert FileDescriptorSet.FromString(COMPILED.read_bytes()) == compiled(), "make stubs"


def test_the_sources_keep_their_licence() -> None:
    assert (PROTOCOL / "NOTICE").read_text().count("The Apache Software Foundation") == 2
    for name in SOURCES:
        assert "Licensed to the Apache Software Foundation" in (PROTOCOL / name).read_text()


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_the_official_client_may_be_in_the_same_process(tmp_path: Path, first: str) -> None:
    """Not needed, nor loaded: it would open a log file in the user's home, and brings a tracing library."""
    if find_spec("rocketmq") is None:
        pytest.skip("rocketmq-python-client is not installed")
    ours = (
        "import tarry.fronts.rocketmq\n"
        "from tarry.fronts.rocketmq.common.stubs import definition, service\n"
        "if 'theirs' not in vars():\n"
        "    assert 'rocketmq' not in sys.modules and 'grpc' not in sys.modules, sorted(sys.modules)\n"
        "    assert not os.listdir(os.environ['HOME'])\n"
    )
    theirs = "import rocketmq\nfrom rocketmq.grpc_protocol import definition_pb2 as theirs\n"
    parts = (ours, theirs) if first == "ours" else (theirs, ours)
    code = (
        "import sys, os\n" + "".join(parts) + "message = definition.Message(body=b'x')\n"
        "message.system_properties.born_timestamp.FromMilliseconds(1500)\n"
        "same = theirs.Message.FromString(message.SerializeToString())\n"
        "assert same.system_properties.born_timestamp.ToMilliseconds() == 1500 and same.body == b'x'\n"
    )
    environment = {"HOME": str(tmp_path), "PATH": "", "PYTHONPATH": PYTHON_PATH}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=60)


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_each_implementation_of_protobuf_makes_them(implementation: str) -> None:
    code = (
        "from google.protobuf.internal import api_implementation\n"
        "print(api_implementation.Type())\n"
        "from tarry.fronts.rocketmq.common.stubs import definition, service\n"
        "request = service.SendMessageRequest(messages=[definition.Message(topic=definition.Resource(name='t'))])\n"
        "assert service.SendMessageRequest.FromString(request.SerializeToString()) == request\n"
        "assert definition.Code.Name(definition.Code.OK) == 'OK'\n"
    )
    environment = {"PYTHONPATH": PYTHON_PATH, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, env=environment, timeout=60, capture_output=True, text=True
    )
    assert done.stdout.strip() == implementation
