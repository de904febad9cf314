"""Asks a RocketMQ v5 endpoint whether it has a topic, by one call of gRPC and without the generated code for it."""

from __future__ import annotations

import grpc  # type: ignore[import-untyped]

METHOD = "/apache.rocketmq.v2.MessagingService/QueryRoute"
CALL_S_MAX = 5.0
# Field 1 of the answer is its status, and field 1 of that the code.
_CODE_OK = b"\x08\xa0\x9c\x01"  # 20000


def has_route(endpoint: str, topic: str) -> bool:
    """Whether a client that starts now would find the topic; not where nobody answers either."""
    host, _, port = endpoint.rpartition(":")
    address = _field(1, host.encode()) + b"\x10" + _varint(int(port))
    request = _field(1, _field(2, topic.encode())) + _field(2, b"\x08\x01" + _field(2, address))
    with grpc.insecure_channel(endpoint) as channel:
        call = channel.unary_unary(METHOD)
        metadata = [("x-mq-client-id", "tarry-bench"), ("x-mq-language", "JAVA"), ("x-mq-protocol", "v2")]
        try:
            answer: bytes = call(request, timeout=CALL_S_MAX, metadata=metadata)
        except grpc.RpcError:
            return False
    return answer[2:6] == _CODE_OK


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
