"""A directory of hard links to a broker's files, in which they stay as they are at one moment.

What is written in place is written into it as a copy. A log's last segment goes on growing: its length that counts is
noted beside.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from pathlib import Path

from tarry.broker.audit_log import HEAD_FILE, AuditHead
from tarry.log.file_engine import DIRECTORIES, FileEngine
from tarry.log.files import link_or_not
from tarry.log.frame import LogKind
from tarry.log.segment import list_segments, segment_path

_TRIES = 20


class HeldDirectory:
    """The new directory ``root``, for files of the data directory ``data``. One thread."""

    def __init__(self, data: Path, root: Path) -> None:
        self._data, self.root = data, root
        root.mkdir(mode=0o700, parents=True)

    def hold(self, name: str, path: Path | None = None) -> None:
        """Hold a file under its name: that of ``data``, or the one at ``path``. Raises OSError."""
        path, target = path or self._data / name, self.root / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not link_or_not(path, target):
            shutil.copy2(path, target)

    def write(self, name: str, content: bytes) -> None:
        """Hold a file of this content. Raises OSError."""
        target = self.root / name
        target.touch(mode=0o640)
        target.write_bytes(content)

    def hold_logs(self, engine: FileEngine, first: Mapping[LogKind, int | None]) -> dict[str, int]:
        """Hold the segments of all logs; return the lengths that count, of those that go on growing.

        ``first``: segments before these are left over from a crash. Old ones of ``acks`` and ``audit`` may be deleted
        meanwhile: then what takes their place is there, and all is looked at again.

        Raises:
            OSError: there is no room, or no descriptor is free.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                # Before the ends: it may be behind its log, and never ahead.
                if (self._data / HEAD_FILE).exists():
                    self.hold(HEAD_FILE)
                lengths: dict[str, int] = {}
                for kind, end in engine.end().items():
                    lengths |= self._hold_log(kind, end.segment, end.position, first.get(kind))
                self._check_audit_log()
                return lengths
            except FileNotFoundError:
                for name in DIRECTORIES.values():
                    shutil.rmtree(self.root / name, ignore_errors=True)
                if not tries_left:
                    raise
        raise AssertionError

    def _hold_log(self, kind: LogKind, last: int, position: int, first: int | None) -> dict[str, int]:
        name, lengths = DIRECTORIES[kind], {}
        directory = self._data / name
        for base in list_segments(directory):
            path = segment_path(directory, base)
            if kind is LogKind.AUDIT and base == last and not position:
                position = path.stat().st_size  # it was opened again, and has no new line
            # Without a durable byte, it is only about to be begun; of the intake the checkpoint may name it already.
            is_begun = position > 0 or kind is LogKind.INTAKE
            if base > last or (first is not None and base < first) or (base == last and not is_begun):
                continue
            self.hold(f"{name}/{path.name}")
            index = path.with_suffix(".idx")
            if base == last:
                lengths[f"{name}/{path.name}"] = position
            elif index.exists():
                self.hold(f"{name}/{index.name}")
        return lengths

    def _check_audit_log(self) -> None:
        """Raise FileNotFoundError: files of the audit log were deleted or begun since its head was read."""
        head, directory = AuditHead.read(self.root), self.root / DIRECTORIES[LogKind.AUDIT]
        bases = list_segments(directory)
        if head is not None and (not bases or bases[0] > head.first or bases[-1] < head.file):
            raise FileNotFoundError(errno.ENOENT, "the audit log has moved on", str(directory))
