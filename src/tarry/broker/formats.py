"""The formats of a data directory: each part's version, and those that this program knows.

Nothing is opened as a broker does, and nothing is changed. Files that are made of others (``.idx``, ``registry/``) are
left out: they are made again where they do not fit.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tarry.broker import (
    access_tokens,
    audit_log,
    credential_days,
    directory,
    front_state,
    hand_out_bound,
    jobs,
    jobs_file,
    last_backup,
    push_file,
    test_clock,
    topic_counts,
)
from tarry.groups import settings_file
from tarry.identity import file as identities_file
from tarry.log import frame
from tarry.log.file_engine import DIRECTORIES
from tarry.log.format_version import is_newer
from tarry.log.segment import list_segments, segment_path

_FRONT_STATE = f"{front_state.DIRECTORY}/{front_state.PATTERN}"
_JSON: dict[str, tuple[int, ...]] = {
    directory.CHECKPOINT_FILE: directory.VERSIONS,
    "topics-*.json": (topic_counts.VERSION,),
    settings_file.FILE: (settings_file.VERSION,),
    push_file.FILE: (push_file.VERSION,),
    access_tokens.FILE: (access_tokens.VERSION,),
    identities_file.FILE: (identities_file.VERSION,),
    test_clock.FILE: (test_clock.VERSION,),
    credential_days.FILE: (credential_days.VERSION,),
    last_backup.FILE: (last_backup.VERSION,),
    audit_log.HEAD_FILE: (audit_log.HEAD_VERSION,),
    _FRONT_STATE: (front_state.BARE_VERSION, front_state.VERSION),
}
"""Readable versions of JSON files, by their names; the last one is written."""
_SQLITE_MAGIC, _USER_VERSION_AT = b"SQLite format 3\0", 60
"""https://www.sqlite.org/fileformat.html#the_database_header"""


@dataclass(frozen=True, slots=True)
class PartFormat:
    """A part of a data directory.

    Attributes:
        part: its path in the directory; of a log, its directory.
        found: its version; None: it cannot be told, for it is damaged.
        reads: versions that this program reads.
    """

    part: str
    found: int | None
    reads: tuple[int, ...]

    @property
    def writes(self) -> int:
        """The version that this program writes."""
        return max(self.reads)

    @property
    def is_newer(self) -> bool:
        """True if a newer program wrote it, and this one refuses it."""
        return is_newer(self.found, self.reads)

    @property
    def is_damaged(self) -> bool:
        """True if it is of no version that any program ever wrote."""
        return self.found is None or (not self.is_newer and self.found not in self.reads)


def formats_of(data: Path) -> Iterator[PartFormat]:
    """Yield the parts of a data directory that are there, in the order in which a start reads them."""
    for pattern, reads in _JSON.items():
        for path in sorted(data.glob(pattern)):
            yield PartFormat(str(path.relative_to(data)), _read(path, _json_version), reads)
    bound, table = data / hand_out_bound.FILE, data / jobs.FILE
    if bound.exists():
        yield PartFormat(bound.name, _read(bound, hand_out_bound.version_of), (hand_out_bound.VERSION,))
    if table.exists() and table.stat().st_size:
        yield PartFormat(table.name, _read(table, _jobs_version), jobs_file.VERSIONS)
    for name in DIRECTORIES.values():
        if segments := list_segments(data / name):
            found = [_segment_version(segment_path(data / name, segment)) for segment in segments]
            # What is damaged is told by `tarry verify`; a torn header of the last file is cut off by a start.
            known = [version for version in found if version is not None]
            yield PartFormat(f"{name}/", max(known, default=None), (frame.VERSION,))


def _read(path: Path, version_in: Callable[[bytes], int | None]) -> int | None:
    try:
        return version_in(path.read_bytes())
    except (ValueError, struct.error):
        return None


def _json_version(content: bytes) -> int | None:
    fields = json.loads(content)
    version = fields.get("version") if isinstance(fields, dict) else None
    return version if isinstance(version, int) and not isinstance(version, bool) else None


def _jobs_version(content: bytes) -> int | None:
    if not content.startswith(_SQLITE_MAGIC):
        return None
    return int.from_bytes(content[_USER_VERSION_AT : _USER_VERSION_AT + 4], "big")


def _segment_version(path: Path) -> int | None:
    with path.open("rb") as file:
        return frame.file_version(file.read(frame.FILE_HEADER_BYTES))
