"""The small files that a data directory has had, so that the loss of one is told.

A broker without one of these files begins as in a new directory: with default settings, no push subscriptions, no
access tokens. So the checkpoint lists those that have been there (``docs/formats.md``). One that it lists and that is
missing was lost: the log says so, and the status of the broker that has missed it; ``tarry verify`` finds it.

A crash leaves no false alarm: a file is listed only once its name is durable, and a listed one is only replaced, never
deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath

from tarry.broker import access_tokens, front_state, hand_out_bound, push_file, test_clock
from tarry.broker.audit_log import HEAD_FILE
from tarry.broker.directory import SECRET_FILE
from tarry.groups import settings_file
from tarry.identity.file import FILE as IDENTITIES_FILE
from tarry.log.files import sync_directory
from tarry.verify import Check, Finding
from tarry.verify.check import RESTORE, Pace, Results

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Small files of one pattern: meaning of a loss, and the remedy where there is no copy."""

    pattern: str
    meaning: str
    remedy: str

    def finding(self, path: Path) -> Finding:
        advice = f"stop the broker, and {RESTORE}; without one, {self.remedy}"
        return Finding(str(path), None, "missing", self.meaning, advice)


_KINDS = (
    _Kind(
        settings_file.FILE,
        "A broker that starts without it has the default settings for all groups and topics.",
        "set them again (tarry group set, tarry topic set)",
    ),
    _Kind(
        push_file.FILE,
        "A broker that starts without it pushes nothing, and the secrets of the subscriptions are gone.",
        "make the subscriptions again, with the groups that they had (tarry push add)",
    ),
    _Kind(
        access_tokens.FILE,
        "A broker that starts without it knows no access tokens of the HTTP front: whoever shows one is refused.",
        "make them again (tarry token create)",
    ),
    _Kind(
        IDENTITIES_FILE,
        "A start without it is refused, since nobody would be asked who they are; every token is gone.",
        "make the first identity again (tarry identity create admin --all --data DIR), then the others",
    ),
    _Kind(
        HEAD_FILE,
        "How far the audit log had come is not known: lines that were cut off at its end are not missed.",
        "look at the log's last lines (tarry audit-log), and go on: it is written again",
    ),
    _Kind(
        f"{front_state.DIRECTORY}/{front_state.PATTERN}",
        "What classic RocketMQ clients have done in single queues, or how they read, is lost: some comes again.",
        "go on: the front writes it again as clients go on, which groups pop with the next mqadmin setConsumeMode",
    ),
    _Kind(
        SECRET_FILE,
        "A start without it makes a new one: handles that were given out before are refused. "
        "With access keys the start is refused, since their secrets are sealed by it.",
        "start, and cancel by key what was to be cancelled by such handles; with access keys, remove identities.json "
        "and make all identities again (tarry identity create admin --all --data DIR)",
    ),
    _Kind(
        test_clock.FILE,
        "That the directory is one of a test clock is not known, nor where that stood.",
        "remove the directory: tests begin with a new one",
    ),
    _Kind(
        hand_out_bound.FILE,
        "A start without it makes a new one, and takes from the clock how far hand-outs had come.",
        "go on; if the clock was set back meanwhile, messages may be cancelled that a consumer had before the stop",
    ),
)


def _kind_of(name: str) -> _Kind | None:
    return next((kind for kind in _KINDS if PurePath(name).match(kind.pattern)), None)


def missing(directory: Path, listed: Collection[str]) -> dict[str, Finding]:
    """Return a finding for each small file that is listed and not there, by its name.

    Names that this program does not know are passed over.
    """
    kinds = {name: kind for name in sorted(listed) if (kind := _kind_of(name)) and not (directory / name).exists()}
    return {name: kind.finding(directory / name) for name, kind in kinds.items()}


def missing_checks(directory: Path, listed: Collection[str]) -> Iterator[Check]:
    """Yield a check for each small file that the checkpoint lists and that is not there."""
    for name, finding in missing(directory, listed).items():
        yield Check(name, finding.path, 0, partial(_told, finding))


def _told(finding: Finding, pace: Pace) -> Results:
    pace(0)
    yield finding


class SmallFiles:
    """The small files of a broker's directory.

    One thread asks for the names; any thread asks for what is lost.
    """

    def __init__(self, directory: Path, listed: Collection[str]) -> None:
        """Look for the listed files, before any is made again, and log the lost ones."""
        self._directory = directory
        self._names = tuple(sorted(listed))
        lost = missing(directory, listed)
        for finding in lost.values():
            log.error("lost: %s", finding)
        self._lost_before = [str(finding) for finding in lost.values()]
        """Told until the process ends: the broker may write such a file again by itself, as the pusher does."""

    @property
    def lost(self) -> list[str]:
        """Texts on the files that the start has missed, and on those that are missing now."""
        now = [str(finding) for finding in missing(self._directory, self._names).values()]
        return self._lost_before + [text for text in now if text not in self._lost_before]

    def names(self) -> tuple[str, ...]:
        """Return the names for the next checkpoint: of all files that have been there, durably.

        Raises:
            OSError: a directory cannot be synced.
        """
        new = {name for name in self._present() if name not in self._names}
        for parent in {(self._directory / name).parent for name in new}:
            # A file that is seen may have a name that a power failure takes back, and the checkpoint would keep its.
            sync_directory(parent)
        if new:
            self._names = tuple(sorted({*self._names, *new}))
        return self._names

    def _present(self) -> Iterator[str]:
        return present(self._directory)


def present(directory: Path) -> Iterator[str]:
    """Yield the names of the small files that are there."""
    for kind in _KINDS:
        if "*" not in kind.pattern:
            if (directory / kind.pattern).exists():
                yield kind.pattern
            continue
        folder, _, pattern = kind.pattern.rpartition("/")
        yield from (f"{folder}/{path.name}" for path in (directory / folder).glob(pattern))
