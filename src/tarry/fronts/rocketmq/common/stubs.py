"""The protocol's protobuf classes, made of its compiled ``.proto`` files by protobuf's runtime.

``../protocol`` has the ``.proto`` files, which are those of apache/rocketmq-apis 2.1.2, and ``messages.binpb``, which
is what protoc makes of them (``make stubs``). The classes are in a pool of descriptors of their own: in the pool that
all generated code shares, the official Python client has the same names, and whichever came second would be refused.
"""

from __future__ import annotations

from importlib.resources import files
from types import ModuleType
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal import builder

COMPILED = "messages.binpb"
"""A ``FileDescriptorSet`` of the two ``.proto`` files, without those of protobuf that they import."""


def _modules() -> tuple[Any, Any]:
    """Return what code generated of ``definition.proto`` and of ``service.proto`` would have, as modules."""
    pool = DescriptorPool()
    for imported in (duration_pb2, timestamp_pb2):
        pool.AddSerializedFile(imported.DESCRIPTOR.serialized_pb)
    compiled = files("tarry.fronts.rocketmq").joinpath("protocol", COMPILED).read_bytes()
    made = []
    for file in FileDescriptorSet.FromString(compiled).file:
        descriptor = pool.AddSerializedFile(file.SerializeToString())
        module = ModuleType(f"{__name__}.{file.name}")
        # The two calls that generated code consists of, in every version of protobuf.
        builder.BuildMessageAndEnumDescriptors(descriptor, vars(module))
        builder.BuildTopDescriptorsAndMessages(descriptor, module.__name__, vars(module))
        made.append(module)
    definition, service = made
    return definition, service


definition, service = _modules()
definition.__doc__ = "``Message``, ``Resource``, ``Status``, ``Code``, ``Settings`` and the like."
service.__doc__ = "The requests and responses of ``MessagingService``."
