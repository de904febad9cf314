"""Where the clients' sources are: checkouts that are here already, or clones of the repositories at one commit."""

from __future__ import annotations

from pathlib import Path

from tests.compat.sources import NoSourceError, clone

CLONES = {
    "go-lmstfy-client": "6ea62f90d15b1581db3bf59a3dc2cca59ee21bf2",
    "java-lmstfy-client": "00c4c4c8b26c8559d857671f434fe50799ff3cf4",
    "php-lmstfy-client": "d93c80209dda93fb2754a8058d288cf6fe427c43",
}
"""Repositories of github.com/bitleak that no package registry has, and the commits that are tried."""


def checkout(repository: str, given: Path | None, directory: Path) -> Path:
    """One of :data:`CLONES`: below ``given``, where that is, or a clone that is put into ``directory``.

    Raises:
        NoSourceError: there is neither.
    """
    if given is not None:
        if not (given / repository).is_dir():
            raise NoSourceError(f"there is no {given / repository}")
        return given / repository
    url = f"https://github.com/bitleak/{repository}"
    return clone(url, CLONES[repository], directory / repository, f"--sources DIRECTORY that has {repository}")
