"""Options of ``tarry send``: one for each row of :data:`tarry.message.options.OPTIONS`.

Rules of recurrence have options of their own (:mod:`tarry.cli.recurrence`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from tarry.base.errors import InvalidArgumentError
from tarry.cli.options import duration_ms
from tarry.message.options import OPTIONS, Option, OptionKind

_SHORT = {"properties": ("--property", "-p")}
"""Names of options that are not the argument's."""


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each of :data:`OPTIONS`, behind its ``--level``.

    The command gets them in ``options`` as columns of a batch; None for what was not given.

    Raises:
        InvalidArgumentError: in the command, if a value is not allowed.
    """
    asked = [option for option in OPTIONS if option.kind is not OptionKind.RULE]

    @wraps(command)
    def run(**given: Any) -> None:
        options = {option.column: _value(option, given.pop(option.name)) for option in asked}
        command(**given, options=options)

    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "options"]
    first = [p.replace(kind=p.KEYWORD_ONLY) for p in own]
    at = 1 + next(i for i, p in enumerate(own) if p.name == "level")
    run.__signature__ = inspect.Signature([*first[:at], *map(_parameter, asked), *first[at:]])  # type: ignore[attr-defined]
    return run


def option_name(option: Option) -> str:
    """Return the name of an option on the command line."""
    return _SHORT.get(option.name, (f"--{option.name.replace('_', '-')}",))[0]


def _parameter(option: Option) -> inspect.Parameter:
    names = _SHORT.get(option.name, (option_name(option),))
    type_: Any = str
    more: dict[str, Any] = {}
    if option.kind is OptionKind.WHOLE:
        type_, more = int, {"min": option.low}
    elif option.kind is OptionKind.TEXTS:
        type_, more = list[str], {"metavar": "NAME=VALUE"}
    elif option.kind is OptionKind.CHOICE:
        more = {"metavar": "|".join(option.choices)}
    text = f"{option.help} Repeatable." if option.kind is OptionKind.TEXTS else option.help
    annotation = Annotated[type_ | None, typer.Option(*names, help=text, **more)]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _value(option: Option, given: Any) -> Any:
    match option.kind:
        case OptionKind.DURATION if given is not None:
            return duration_ms(given, option_name(option))
        case OptionKind.TEXTS:
            return _pairs(given or [], option_name(option))
        case OptionKind.CHOICE if given == option.default:
            # It is meant without a word, and a column that nobody needs costs the broker time.
            return None
    return given


def _pairs(given: list[str], name: str) -> list[tuple[str, str]] | None:
    pairs = [text.partition("=") for text in given]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise InvalidArgumentError(f"{name} {key}{equals}: no name or no value; allowed: NAME=VALUE")
    return [(key, value) for key, _, value in pairs] or None
