"""What commands and settings there are, by the program's own account."""

from __future__ import annotations

from typing import Any

from tarry.cli.main import command
from tarry.fronts.registry import ServerConfig


def setting_names() -> set[str]:
    """Of ``tarry serve``."""
    return set(ServerConfig.model_fields)


def check_command(words: list[str]) -> dict[str, Any]:
    """Have the program take apart a command of its own; what it was given. It raises for what it does not take."""
    program, *rest = words
    assert program == "tarry", words
    found: Any = command()
    while hasattr(found, "get_command"):
        name = rest.pop(0)
        found = found.get_command(None, name)
        assert found is not None, name
    params: dict[str, Any] = found.make_context(words[0], rest).params
    return params
