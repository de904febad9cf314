"""The Arrow Flight front, for any Flight client: described in ``docs/formats-flight.md``.

``front`` starts and stops it: gRPC by :mod:`loopgrpc`, on one event loop · ``service`` maps calls to operations of
:mod:`tarry.api`, which ``requests`` reads · ``sending`` is the long-lived stream, of batches to schedule · ``messages``
are Flight's on the wire. Encoding and decoding, which clients share, are in :mod:`tarry.api.wire`.
"""
