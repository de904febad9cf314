"""The registry of names: keys, ids, series and cancellations of messages. On disk, in bounded memory.

All of it is derived from the intake log and the store, and rebuilt when it is lost. ``encoding`` defines the entries'
bytes. ``registry`` keeps the entries in the ``database``; ``continuity`` and ``record_files`` detect whether that is
whole. ``sweep`` forgets old entries. ``rebuild`` fills a new registry. Format: ``docs/formats.md``.
"""

from tarry.names.encoding import NameEntry, digest_of_id, name_of_key, name_of_series
from tarry.names.registry import Registry

__all__ = ["NameEntry", "Registry", "digest_of_id", "name_of_key", "name_of_series"]
