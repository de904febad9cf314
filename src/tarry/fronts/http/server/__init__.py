"""The HTTP/1.1 server of the front: httptools' parser under asyncio protocols.

A client's use of time, bytes and connections is bounded.

``limits`` has the bounds · ``connection`` is one client's · ``message`` is one request with its answer, for handlers
(:mod:`tarry.fronts.http.exchange`) and for ASGI applications, which ``asgi`` makes handlers of · ``server`` listens,
and looks after all connections.

Why it is our own: ``docs/decisions/0027-http-server.md``.
"""
