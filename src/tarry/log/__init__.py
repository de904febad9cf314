"""Append-only segments of CRC-checked frames of Arrow record batches. Format: ``docs/formats.md``.

Layers, from below: ``files`` (what the disk does, and where tests inject faults) → ``frame`` (pure encode and decode) →
``segment`` (one file) → ``recover`` (torn or damaged?) → ``commit`` (one fsync for all that waits). Intake, ready log
and journal use them.
"""
