"""The setting ``jwt_issuers``: several providers of identities, a table of each by its name.

A file has ``[jwt_issuers.NAME]``; the command line and the environment have the same in one line, as an inline table of
TOML, and so is it kept.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from tarry.base.errors import InvalidArgumentError
from tarry.base.issuer_settings import IssuerSettings
from tarry.base.toml_text import inline_table, quoted

_FIELDS = {each.name: each.default is MISSING for each in fields(IssuerSettings) if each.name != "name"}
"""Names of what a provider's table has, and whether it has to be there."""
ALLOWED = (
    'tables by name, or in one line { NAME = { issuer = "…", audience = "…" } }; with these two, maybe '
    + ", ".join(name for name, is_needed in _FIELDS.items() if not is_needed)
)
"""The allowed values, in words."""


def issuers_line(given: object) -> str | None:
    """Return the setting as one line, of a table or of such a line; None: it is empty.

    Raises:
        InvalidArgumentError: it is no table of providers.
    """
    table = _read(given) if isinstance(given, str) else given
    if not isinstance(table, Mapping):
        raise InvalidArgumentError(f"it is {given!r:.300}; allowed: {ALLOWED}")
    checked = {name: _checked(name, provider) for name, provider in table.items()}
    lines = {name: inline_table({key: quoted(value) for key, value in each.items()}) for name, each in checked.items()}
    return inline_table(lines) if lines else None


def parse_issuers(line: str | None) -> tuple[IssuerSettings, ...]:
    """Return the providers that the setting names.

    Raises:
        InvalidArgumentError: one of them contradicts itself.
    """
    return tuple(IssuerSettings(name, **_checked(name, provider)) for name, provider in _read(line or "").items())


def _read(line: str) -> Mapping[str, Any]:
    if not line.strip():
        return {}
    try:
        read = tomllib.loads(f"table = {line}")
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgumentError(f"{line!r:.300} is no table: {error}; allowed: {ALLOWED}") from error
    table = read.pop("table")
    if read or not isinstance(table, Mapping):
        raise InvalidArgumentError(f"{line!r:.300} is no table; allowed: {ALLOWED}")
    return table


def _checked(name: str, provider: object) -> dict[str, str]:
    """Return what is said of a provider; an empty text is as nothing."""
    if not isinstance(provider, Mapping):
        raise InvalidArgumentError(f"{name} is {provider!r:.300}; allowed: {ALLOWED}")
    for key, value in provider.items():
        if key not in _FIELDS or not isinstance(value, str):
            raise InvalidArgumentError(f"{name} has {key} = {value!r:.300}; allowed: texts: {', '.join(_FIELDS)}")
    given = {key: value for key, value in provider.items() if value}
    missing = [key for key, is_needed in _FIELDS.items() if is_needed and key not in given]
    if missing:
        raise InvalidArgumentError(f"{name} lacks {' and '.join(missing)}; allowed: {ALLOWED}")
    return given
