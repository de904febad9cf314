"""Java projects of these benchmarks, built by Maven outside the tree and once for each state of their files."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tarry.base.errors import NotFoundError

BUILD_S_MAX = 900


def class_path(project: Path, name: str) -> str:
    """The class path of the project in a directory, with all that it depends on; ``name`` begins its name in the cache.

    Raises:
        NotFoundError: it is not in the cache, and there is no Maven to build it with.
        RuntimeError: it cannot be built; says what Maven says.
    """
    directory = _cache() / f"{name}-{_digest(project)}"
    if not directory.exists():
        _build(project, directory)
    return f"{directory / 'target' / 'classes'}{os.pathsep}{directory / 'lib' / '*'}"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tarry"


def _digest(project: Path) -> str:
    state = hashlib.sha256()
    for path in sorted(p for p in project.rglob("*") if p.is_file()):
        content = path.read_bytes()
        state.update(f"{path.relative_to(project).as_posix()} {len(content)}\n".encode() + content)
    return state.hexdigest()[:8]


def _build(project: Path, directory: Path) -> None:
    if shutil.which("mvn") is None:
        raise NotFoundError(f"no {directory}, and no Maven (mvn) to build it with; install Maven and a JDK")
    directory.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=directory.parent))
    try:
        shutil.copytree(project, fresh, dirs_exist_ok=True)
        # A relative directory would be beside the pom; whole or not at all, so a run that is killed leaves none behind.
        command = ["mvn", "-q", "-B", "-f", str(fresh / "pom.xml"), "compile", "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={fresh / 'lib'}", "-DincludeScope=runtime"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S_MAX)
        if done.returncode:
            raise RuntimeError(f"Maven cannot build {project}: {(done.stdout + done.stderr)[-3000:]}")
        try:
            fresh.rename(directory)
        except OSError:
            if not directory.exists():  # else another run was faster
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
