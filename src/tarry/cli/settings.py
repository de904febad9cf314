"""Options of ``tarry group set`` and ``tarry topic set``, from the settings of ``tarry.api.groups``.

A number of milliseconds is asked for as a duration (``lease_ms`` is ``--lease 90s``), a truth as a pair of options
(``--ordered/--not-ordered``); anything else as what it is, under its own name. What is not given stays as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from tarry.cli.options import duration_ms

NONE = "none"
"""Word for -1 of a duration whose default that is."""


def with_settings(kind: type, left_out: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each field of ``kind``.

    It gets them in ``settings``, by their names; None: not given.

    Raises:
        InvalidArgumentError: in the command, where a duration is none.
    """
    types = get_type_hints(kind)
    asked = [setting for setting in fields(kind) if setting.name not in left_out]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            settings = {setting.name: _value(setting, given.pop(setting.name)) for setting in asked}
            command(**given, settings=settings)

        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "settings"]
        first = [p.replace(kind=p.KEYWORD_ONLY) for p in own]
        options = [_option(setting, types[setting.name]) for setting in asked]
        at = sum(p.default is p.empty for p in own)
        run.__signature__ = inspect.Signature([*first[:at], *options, *first[at:]])  # type: ignore[attr-defined]
        return run

    return decorate


def _option(setting: Field[Any], type_: type) -> inspect.Parameter:
    name = _name(setting)
    if type_ is bool:
        name = f"{name}/--not-{name[2:]}"
    shown = str if _is_duration(setting) else type_
    annotation = Annotated[shown | None, typer.Option(name, help=setting.metadata["help"])]  # type: ignore[valid-type]
    return inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _name(setting: Field[Any]) -> str:
    return "--" + "-".join(part for part in setting.name.split("_") if part != "ms")


def _value(setting: Field[Any], given: Any) -> Any:
    if given is None or not _is_duration(setting):
        return given
    if given == NONE and setting.default == -1:
        return -1
    return duration_ms(given, _name(setting))


def _is_duration(setting: Field[Any]) -> bool:
    return "ms" in setting.name.split("_")
