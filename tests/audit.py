"""Known holes of what is locked: ``make audit``, which is ``python -m tests.audit`` with pip-audit installed.

Exit codes: 0 if every package was looked up and none has a known hole, 1 if one has, 2 if not all could be looked up.
pip-audit alone ends with 0 where its service knows no package at all, as that of a mirror of PyPI.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

LOCKS = sorted((Path(__file__).parents[1] / "requirements").glob("*.lock"))
SERVICES = ("pypi", "osv")
"""Asked one after the other, until one knows all packages."""
NONE, HOLES, UNKNOWN = 0, 1, 2


def ask(service: str, files: Sequence[Path], timeout_s: int = 15) -> tuple[list[dict[str, Any]], str]:
    """What pip-audit found: its packages, and its last words if it found none out."""
    packages: list[dict[str, Any]] = []
    for file in files:
        command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", service, "--format", "json"]
        command += ["--disable-pip", "--no-deps", "--progress-spinner", "off", "--timeout", str(timeout_s)]
        command += ["--requirement", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            packages += json.loads(done.stdout)["dependencies"]
        except (ValueError, KeyError):
            return [], (done.stderr.strip().splitlines() or [f"pip-audit ended with {done.returncode}"])[-1]
    return packages, ""


def write(place: Path, locks: Iterable[Path] = LOCKS) -> list[Path]:
    """Write what is locked for any Python and platform, in files that name each package once, as pip-audit wants it."""
    rows: list[dict[str, str]] = []
    pins = {pin for lock in locks for pin in re.findall(r"^(\S+)==([^ ;]+)", lock.read_text(), re.MULTILINE)}
    for name, version in sorted(pins):
        for row in rows:
            if name not in row:
                row[name] = version
                break
        else:
            rows.append({name: version})
    files = []
    for number, row in enumerate(rows):
        files.append(place / f"{number}.txt")
        files[-1].write_text("".join(f"{name}=={version}\n" for name, version in row.items()))
    return files


def judge(packages: Sequence[dict[str, Any]]) -> tuple[int, list[str]]:
    """The exit code for what a service said, and lines that tell why."""
    holes = [
        f"{package['name']} {package['version']}: {', '.join([hole['id'], *hole.get('aliases', ())])}; "
        f"fixed in {', '.join(hole['fix_versions']) or 'no release'}"
        for package in packages
        for hole in package.get("vulns", ())
    ]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if holes:
        return HOLES, holes
    if skipped or not packages:
        return UNKNOWN, [f"it knows {len(packages) - len(skipped)} of {len(packages)} packages"]
    return NONE, [f"{len(packages)} packages, no known holes"]


def main() -> int:
    """Ask the services; the first that knows all packages, or a hole, decides."""
    with tempfile.TemporaryDirectory() as place:
        files = write(Path(place))
        for service in SERVICES:
            packages, failure = ask(service, files)
            code, lines = judge(packages)
            for line in [failure] if failure else lines:
                print(f"{service}: {line}")
            if code != UNKNOWN:
                return code
    print("Not audited: no database of holes knows all packages. That says nothing about whether there are any.")
    return UNKNOWN


if __name__ == "__main__":
    sys.exit(main())
