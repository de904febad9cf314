"""The files of this distribution: what ``pyproject.toml`` of Tarry keeps out of the wheel of ``tarry``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ClientHook(BuildHookInterface[Any]):
    """Adds the files to a wheel; an editable one has the way to their directory instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files. ``version``: ``editable`` or ``standard``."""
        if version == "editable":
            return
        checkout = Path(self.root).parents[1]
        for path in files_of_client(checkout):
            build_data["force_include"][str(path)] = str(path.relative_to(checkout / "src"))


def files_of_client(checkout: Path) -> Iterator[Path]:
    """Yield the files, in order."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    for name in project["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]:
        path = checkout / name.strip("/")
        if not path.exists():
            raise FileNotFoundError(f"{path}, which pyproject.toml of Tarry says is tarry-client's")
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]
