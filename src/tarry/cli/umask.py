"""Permissions of the files that a serving process writes."""

from __future__ import annotations

UMASK = 0o027
"""Whatever it was before: directories 0750 and files 0640, those of the embedded databases, too."""
