"""lmstfy's source, and programs built of it: its server, and the measuring client that is compiled with it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tarry.base.errors import NotFoundError

MODULE = "github.com/bitleak/lmstfy"
REPOSITORY = f"https://{MODULE}"
COMMIT = "725f59efd2f79f01446a5aa56a2263dc5b146cf4"
SOURCE = "LMSTFY_SOURCE"
"""An environment variable: a checkout of it, where it cannot be fetched."""
CLIENT = Path(__file__).with_name("client")
BUILD_S_MAX = 900


def source(directory: Path) -> Path | None:
    """A checkout: the one of ``LMSTFY_SOURCE``, the Go module where a proxy has it, or a clone that is put into
    ``directory``; None: none of them can be had.
    """
    given = os.environ.get(SOURCE)
    if given:
        return Path(given)
    command = ["go", "mod", "download", "-json", f"{MODULE}@{COMMIT}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tempfile.gettempdir())
    if done.returncode == 0:
        return Path(json.loads(done.stdout)["Dir"])
    clone = directory / "clone"
    quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(["git", "clone", "--quiet", REPOSITORY, clone], env=quiet, capture_output=True, text=True)
    if done.returncode:
        return None
    subprocess.run(["git", "checkout", "--quiet", COMMIT], cwd=clone, check=True)
    return clone


def built() -> Path:
    """The directory in ``~/.cache/tarry`` with the programs ``server`` and ``bench``.

    Raises:
        NotFoundError: they are not there, and there is no Go, or no source, to build them with.
        RuntimeError: they cannot be built; says what Go says.
    """
    directory = _cache() / f"lmstfy-bench-{_digest()}"
    if not directory.exists():
        if shutil.which("go") is None:
            raise NotFoundError(f"no {directory}, and no Go (go) to build it with; install Go")
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{directory.name}-", dir=directory.parent) as fresh:
            _build(Path(fresh))
            try:
                (Path(fresh) / "programs").rename(directory)  # whole or not at all
            except OSError:
                if not directory.exists():  # else another run was faster
                    raise
    return directory


def _build(fresh: Path) -> None:
    found = source(fresh)
    if found is None:
        raise NotFoundError(f"there is no source of lmstfy; allowed: {SOURCE}=CHECKOUT of {REPOSITORY}")
    copy = copy_of(found, fresh / "lmstfy")
    shutil.copytree(CLIENT, copy / "tarrybench", dirs_exist_ok=True)
    programs = fresh / "programs"
    programs.mkdir()
    for name, package in (("server", "./server"), ("bench", "./tarrybench")):
        go("build", "-o", str(programs / name), package, directory=copy)


def copy_of(checkout: Path, place: Path) -> Path:
    """A copy that may be changed: a module's own files may be read-only."""
    shutil.copytree(checkout, place, ignore=shutil.ignore_patterns(".git"), copy_function=shutil.copyfile)
    return place


def go(*words: str, directory: Path) -> None:
    """Run Go.

    Raises:
        RuntimeError: it failed; says what it says.
    """
    environment = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false"}
    done = subprocess.run(
        ["go", *words], cwd=directory, env=environment, capture_output=True, text=True, timeout=BUILD_S_MAX
    )
    if done.returncode:
        raise RuntimeError(f"go {' '.join(words)} failed: {(done.stdout + done.stderr)[-3000:]}")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tarry"


def _digest() -> str:
    state = hashlib.sha256(COMMIT.encode())
    for path in sorted(CLIENT.iterdir()):
        state.update(path.name.encode() + path.read_bytes())
    return state.hexdigest()[:8]
