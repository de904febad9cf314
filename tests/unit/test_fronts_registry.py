"""The declarations of fronts: each one can be loaded, and none is forgotten."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import tarry.fronts
from tarry.base.errors import NotFoundError
from tarry.fronts.kit.front import Front
from tarry.fronts.kit.settings import FrontSettings
from tarry.fronts.registry import FRONTS, ServerConfig, front_of

KIT = "kit"


def name_of(front: Front) -> str:
    return front.name


@pytest.mark.parametrize("front", FRONTS, ids=name_of)
def test_a_declaration_names_what_is_there(front: Front) -> None:
    assert front.name in ServerConfig.model_fields
    for place in filter(None, (front.start, front.check, front.home)):
        module, _, function = place.partition(":")
        assert callable(getattr(import_module(module), function))
    front.check_installed()
    assert front_of(front.name) is front


def test_every_package_of_fronts_is_declared() -> None:
    packages = {path.parent.name for path in Path(tarry.fronts.__file__).parent.glob("*/__init__.py")} - {KIT}
    assert {front.start.split(".")[2] for front in FRONTS} == packages


def test_a_front_is_on_where_its_setting_has_a_value() -> None:
    on = {front.name for front in FRONTS if front.is_on(ServerConfig(flight=None, push="off", metrics="127.0.0.1:0"))}
    assert on == {"metrics"}
    workers = {front.name for front in FRONTS if front.is_on(ServerConfig(flight=None, push="on", workers=2))}
    assert workers == {"gateway", "push"}, "the workers of a front connect to the port of gateways"


def test_a_missing_package_is_told_with_its_extra() -> None:
    front = Front(
        name="x",
        title="X",
        settings=FrontSettings,
        start="no_such_module:start",
        extra="extra-of-x",
        worker_needs="no_such_module",
    )
    with pytest.raises(NotFoundError, match=r"the X front needs the extra 'extra-of-x'.*or no x address"):
        front.check_installed()
