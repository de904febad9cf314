"""A gRPC server on asyncio for handlers of bytes: strict, bounded and fast. It knows no protobuf.

From the outside in; a module imports only from those below it::

    server          listens and stops
    connections     all connections, whoever accepts them, and one timer for them; usage: what each uses
    connection      hands each frame to the part that it concerns; keepalive; frame_reader: bytes to frames
    control_frames  SETTINGS, PING, WINDOW_UPDATE and others; header_blocks: HEADERS and CONTINUATION put together
    streams         the table of streams; stream_ids: those that are not open; request_decoder: blocks to requests
    stream          one call on the wire, from its HEADERS to its trailers; request_body: its DATA to messages
    response        its messages and trailers, as the peer's windows let them go
    stream_context  what the streams of a connection share
    sender          writes: windows of the peer, whose turn it is, one write a loop turn
    handlers        the four kinds of methods and how each is run; promise: results that come later without a Task
    call            what a handler sees of its call; metadata: the fields that callers and handlers add
    responses       header blocks and frames of responses; request: header fields to a request, or why not
    framing         gRPC's messages inside DATA; frames: their layout
    hpack_decoder   header compression, with header_table and huffman
    admission       a place for each connection; bounds on all, and on those of one peer
    limits          what a peer may cost; byte_budget: what is held for all peers; flood: token buckets against floods
    status          how calls end

Sources: RFC 9113 (HTTP/2), RFC 7541 (HPACK), and gRPC's PROTOCOL-HTTP2.md. ``README.md`` shows how to use it.
"""

from loopgrpc.admission import Admission
from loopgrpc.byte_budget import ByteBudget
from loopgrpc.call import Call
from loopgrpc.connections import Connections
from loopgrpc.framing import Framed, assembled, framed
from loopgrpc.handlers import Bidi, ClientStream, Handler, ServerStream, Unary
from loopgrpc.limits import Allowance, Limits
from loopgrpc.promise import Promise, Responses
from loopgrpc.server import GrpcServer
from loopgrpc.status import GrpcError, StatusCode
from loopgrpc.unread_bytes import ANSWER_BYTES, UnreadBytes, UnreadOfConnection
from loopgrpc.usage import ConnectionUsage

__all__ = [
    "ANSWER_BYTES",
    "Admission",
    "Allowance",
    "Bidi",
    "ByteBudget",
    "Call",
    "ClientStream",
    "ConnectionUsage",
    "Connections",
    "Framed",
    "GrpcError",
    "GrpcServer",
    "Handler",
    "Limits",
    "Promise",
    "Responses",
    "ServerStream",
    "StatusCode",
    "Unary",
    "UnreadBytes",
    "UnreadOfConnection",
    "assembled",
    "framed",
]
