"""The Arrow Flight front: Tarry's own protocol, described in ``docs/formats-flight.md``.

``front`` starts and stops it: gRPC by :mod:`loopgrpc`, on one event loop · ``service`` maps calls to operations of
:mod:`tarry.api`, which ``requests`` reads · ``sending`` and ``receiving`` are the two long-lived streams · ``messages``
are Flight's on the wire. Encoding and decoding, which clients share, are in :mod:`tarry.api.wire`.
"""
