"""What the image does not take: there is such a thing, and the broker imports nothing of it."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.modules import module_at
from tests.sources import ROOT

PLACE = ROOT / "container"
NOT_IN_THE_IMAGE = ("celery", "django", "pytest_plugin", "rabbitmq", "spark")
"""Packages and modules of ``tarry`` that need what none of the image's extras brings."""
IMPORT_ALL = f"""
import contextlib, importlib, io, json, pkgutil, sys, tarry
for module in pkgutil.walk_packages(tarry.__path__, "tarry."):
    if not any(each in module.name for each in {NOT_IN_THE_IMAGE}) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
with contextlib.redirect_stdout(io.StringIO()):
    tarry.cli.main.command().main(["size", "--help"], standalone_mode=False)
print(json.dumps([each.__file__ for each in sys.modules.values() if getattr(each, "__file__", None)]))
"""


def left_out() -> dict[str, str]:
    packages: dict[str, str] = module_at(PLACE / "left_out.py").PACKAGES
    return packages


PACKAGES = left_out()
HERE = Path(sysconfig.get_path("purelib"))


@pytest.mark.parametrize("pattern", PACKAGES)
def test_there_is_such_a_thing(pattern: str) -> None:
    assert next(iter(HERE.glob(pattern)), None) is not None
    assert PACKAGES[pattern]


def test_the_broker_imports_nothing_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    imported = {Path(each) for each in json.loads(done.stdout.splitlines()[-1])}
    assert any(each.name == "fs.py" and each.parent.name == "pyarrow" for each in imported)
    places = imported | {parent for each in imported for parent in each.parents}
    for pattern in PACKAGES:
        if not pattern.startswith("**/*."):
            assert not places & set(HERE.glob(pattern)), pattern
