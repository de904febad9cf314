"""A module that is in no package: an example's, the image's."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def module_at(path: Path, name: str | None = None, *, during: pytest.MonkeyPatch | None = None) -> ModuleType:
    """Run the file as a module, named as the file or ``name``, and return it.

    ``during``: it can be imported by its name, too, as what looks up its annotations does, until this is undone.
    """
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if during is not None:
        during.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module
