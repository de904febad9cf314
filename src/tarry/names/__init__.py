"""What is known of messages by name: keys, ids, series, and what was cancelled. On disk, in bounded memory.

All of it is derived from the intake log and the store, and made again when it is lost. ``encoding`` is how entries
look · ``registry`` keeps them, in the ``database``, of which ``continuity`` and ``record_files`` tell whether it is
whole · ``sweep`` forgets what is old · ``rebuild`` makes all of it again. Format: ``docs/formats.md``.
"""

from tarry.names.encoding import NameEntry, digest_of_id, name_of_key, name_of_series
from tarry.names.registry import Registry

__all__ = ["NameEntry", "Registry", "digest_of_id", "name_of_key", "name_of_series"]
