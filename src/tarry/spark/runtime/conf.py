"""The settings of a session, from those of Tarry, the job, the machine and the user.

The user's win, whatever they are; then those of the machine's ``spark-defaults.conf``, which Spark itself would put
below everything that a program sets; then the job's and Tarry's.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tarry.base.errors import InvalidArgumentError
from tarry.base.spark_conf import parse_pairs, properties, read_file

CORES_MAX = "2"
"""Cores of a standalone cluster for one application, which otherwise gets all of them.

A second application would wait for ever. Two schedule some hundred thousand messages a second.
"""
_PYTHONS = ("spark.pyspark.python", "spark.pyspark.driver.python")
_APPENDED = ("spark.driver.extraJavaOptions",)


def user_conf(pairs: list[str] | tuple[str, ...] | None, *files: Path | str | None) -> dict[str, str]:
    """Return the settings of ``--spark-conf`` and files of ``--spark-conf-file``; the first win.

    Raises:
        InvalidArgumentError: the file cannot be read, or a setting is not allowed.
    """
    found: dict[str, str] = {}
    for file in reversed(files):
        found |= read_file(Path(file)) if file else {}
    return found | parse_pairs(pairs or ())


def machine_conf(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings of this machine's ``spark-defaults.conf``, if there is one."""
    place = environment.get("SPARK_CONF_DIR") or (
        f"{environment['SPARK_HOME']}/conf" if environment.get("SPARK_HOME") else None
    )
    file = None if place is None else Path(place) / "spark-defaults.conf"
    return {} if file is None or not file.is_file() else properties(file)


def merged(
    master: str, defaults: Mapping[str, str], machine: Mapping[str, str], user: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of a session.

    Java's options are put behind Tarry's, not in their place: of two that say the same, Java takes the last.
    """
    bound = {"spark.cores.max": CORES_MAX} if master.startswith("spark://") else {}
    known = {**bound, **_authentication(master, {**machine, **user}), **defaults}
    # Spark reads the machine's settings itself, but below everything that a program sets.
    given = {name: value for name, value in machine.items() if name in known or name in _PYTHONS} | dict(user)
    for name in _APPENDED:
        if name in known and name in given:
            given[name] = f"{known[name]} {given[name]}"
    return known | given


def _authentication(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a secret between Spark's processes, where Spark makes it by itself.

    On a standalone cluster each of its machines has to be given the secret, so there it is the operator's to turn on.
    """
    shuffles_elsewhere = given.get("spark.shuffle.service.enabled", "").lower() == "true"
    if not (master.startswith("local") or (master == "yarn" and not shuffles_elsewhere)):
        return {}  # a shuffle service of YARN has the setting of its own, and both must be the same
    return {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


def set_python(settings: Mapping[str, str], environment: dict[str, str] | os._Environ[str] = os.environ) -> None:
    """Set the Python of the workers.

    It is the one that ``spark.pyspark.python`` or ``PYSPARK_PYTHON`` names, else this one, even if its virtual
    environment is not activated.

    Raises:
        InvalidArgumentError: a relative path that is not there for the driver, which starts Python workers, too.
    """
    python = settings.get("spark.pyspark.python") or environment.get("PYSPARK_PYTHON") or sys.executable
    if not Path(python).is_absolute() and "/" in python and not Path(python).exists():
        raise InvalidArgumentError(
            f"the Python of Spark's workers is {python!r}, which is not there in {Path.cwd()}; the driver plans by it, "
            "too; allowed: a path that is the same everywhere; with spark.archives, a link of that name here, as by "
            f"ln -s {sys.prefix} {Path(python).parts[0]}"
        )
    environment["PYSPARK_PYTHON"] = python
    environment["PYSPARK_DRIVER_PYTHON"] = settings.get("spark.pyspark.driver.python") or sys.executable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--spark-conf`` and ``--spark-conf-file`` to a job's parser."""
    parser.add_argument("--spark-conf", action="append", metavar="NAME=VALUE", help="a setting for Spark; repeatable")
    parser.add_argument(
        "--spark-conf-file",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="more of them, as in spark-defaults.conf; repeatable, the first win",
    )


def write_private(path: Path, text: str) -> None:
    """Write a file that this user alone can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)
