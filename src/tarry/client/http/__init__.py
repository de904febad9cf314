"""HTTP as a client's way to its broker, by urllib3: Tarry's own API (docs/http.md).

Needs neither Arrow nor NumPy.

``address`` is where · ``exchange`` sends requests · ``operations`` and ``rows`` write them, and read the answers ·
``received`` is what arrives, ``settling`` brings acks back · ``consumer`` is for people · ``way`` is all of it.
"""
