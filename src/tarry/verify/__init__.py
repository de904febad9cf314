"""Checking files for damage: all of a data directory offline (``tarry verify``), or slowly beside a broker.

``check`` (what a check is, and what it finds) ← ``logs``, ``small_files``, ``store``, ``registry``: one kind of files
each. ``tarry.broker.verification`` puts them together for a directory. Nothing here changes a file.
"""

from tarry.verify.check import Check, Finding, Note, Pace

__all__ = ["Check", "Finding", "Note", "Pace"]
