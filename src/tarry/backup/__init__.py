"""Backups of a serving broker, and their restoring: ``tarry backup`` and ``tarry restore``.

``manifest`` is what a backup says of itself, ``files`` copies single files, ``store_files`` those of a table's version.
``making`` makes a backup of what a broker holds (:mod:`tarry.broker.backups`), ``restoring`` a data directory of a
backup, ``acknowledged`` takes acknowledgements back in it. Format: ``docs/formats.md``.
"""
