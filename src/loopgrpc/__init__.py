"""A gRPC server for handlers of bytes: HTTP/2 on ``asyncio.Protocol``, strict and bounded. It knows no protobuf.

::

    server        listens, TLS, stops with grace; one timer for all silent, stalled and half-open connections
    doors         TLS or not on one port, as each client likes
    connection    reads frames and knows what is allowed when; ``control`` answers the frames of no call
    outbox        writes: windows of the peer, fairness, one write a loop turn     inbox   the windows that we give
    stream        a call on the wire: from its HEADERS to its trailers             call    what a handler sees of it
    handlers      the four kinds, and how each is run
    request       fields to a request, or why not       answers   constant header blocks       messages   gRPC's framing
    fields        HPACK      frames   layout      guard, limits   what a peer may cost      status   how calls end

Sources: RFC 9113, RFC 7541, and gRPC's PROTOCOL-HTTP2.md. ``docs/decisions/0016-own-grpc-server.md`` says why it is
here.
"""

from loopgrpc.answers import Framed, framed
from loopgrpc.call import Call
from loopgrpc.handlers import Answers, Bidi, ClientStream, Handler, Promise, ServerStream, Unary
from loopgrpc.limits import Allowance, Limits
from loopgrpc.server import GrpcServer
from loopgrpc.status import GrpcError, StatusCode

__all__ = [
    "Allowance",
    "Answers",
    "Bidi",
    "Call",
    "ClientStream",
    "Framed",
    "GrpcError",
    "GrpcServer",
    "Handler",
    "Limits",
    "Promise",
    "ServerStream",
    "StatusCode",
    "Unary",
    "framed",
]
