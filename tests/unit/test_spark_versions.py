"""Which PySpark is allowed: what is installed, what is tested, and what is refused are the same."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from tests.spark.matrix import VERSIONS

from tarry.base.errors import NotFoundError
from tarry.spark.runtime.versions import check_pyspark

ROOT = Path(__file__).parents[2]
MINORS = [f"{major}.{minor}" for major in (3, 4, 5) for minor in range(10)]


def allowed() -> dict[str, SpecifierSet]:
    """What each extra says of PySpark."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = {name: [Requirement(text) for text in extras[name]] for name in ("spark", "spark43", "dev")}
    return {name: next(r.specifier for r in needed if r.name == "pyspark") for name, needed in found.items()}


def test_each_minor_that_can_be_installed_is_tested_and_no_other() -> None:
    extras = allowed()
    can = [minor for minor in MINORS if any(spec.contains(f"{minor}.0") for spec in extras.values())]
    assert can == sorted({".".join(version.split(".")[:2]) for version in VERSIONS}) == ["4.2", "4.3"]
    assert extras["spark"] == extras["dev"]


def test_what_is_too_old_is_refused_by_name() -> None:
    for minor in MINORS:
        version = f"{minor}.1"
        if Version(version) >= Version("4.2"):
            check_pyspark(version)
        else:
            with pytest.raises(NotFoundError, match=f"PySpark {version} is too old; allowed: 4.2 or newer"):
                check_pyspark(version)
    check_pyspark("4.4.0.dev1")
