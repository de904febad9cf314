"""Checks of files for damage: of a data directory offline (``tarry verify``), or beside a broker.

Checks beside a broker run slowly.

``check`` defines checks and their findings. ``logs``, ``small_files``, ``store`` and ``registry`` each check one kind
of files. ``tarry.broker.verification`` puts them together for a directory. Nothing here changes a file.
"""

from tarry.verify.check import Check, Finding, Note, Pace

__all__ = ["Check", "Finding", "Note", "Pace"]
