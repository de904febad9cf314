"""The Arrow Flight front: Tarry's own protocol, described in ``docs/formats-flight.md``.

``server`` maps calls to operations of :mod:`tarry.api`, which ``requests`` reads · ``put`` and ``consume`` are the two
long-lived streams · ``calls`` and ``guard`` (by ``sockets``) bound what one client may take · ``front`` starts and
stops it all. Encoding and decoding, which clients share, are in :mod:`tarry.api.wire`.
"""
