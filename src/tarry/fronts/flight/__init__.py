"""The Arrow Flight front: Tarry's own protocol, described in ``docs/formats-flight.md``.

``front`` starts and stops it: gRPC by :mod:`loopgrpc`, on one event loop · ``service`` maps calls to operations of
:mod:`tarry.api`, which ``requests`` reads · ``sending`` and ``receiving`` are the two long-lived streams · ``calls``
bounds what one client may have open · ``messages`` are Flight's on the wire, and ``batches`` what is in them. Encoding
and decoding, which clients share, are in :mod:`tarry.api.wire`.
"""
