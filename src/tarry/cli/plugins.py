"""Commands of other distributions, found by their entry points in the group ``tarry.commands``.

An entry point names a command and leads to its function, or to a ``typer.Typer`` of several. They are looked up when
such a command is named, or all are listed: a look reads the metadata of everything that is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from tarry.base.errors import NotFoundError
from tarry.cli.tls_options import add_tls_options

GROUP = "tarry.commands"
OURS = {"demo": "tarry-demo", "relay": "tarry-relay"}
"""Commands of this repository's distributions, which are listed also where they are not installed."""


class CommandGroup(typer.core.TyperGroup):
    """The commands that are registered, and then those of other distributions."""

    def __init__(self, **how: Any) -> None:
        """Give all commands that connect to a broker the options of TLS."""
        super().__init__(**how)
        add_tls_options(self)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        own = super().list_commands(ctx)
        found = {entry.name for entry in entry_points(group=GROUP)}
        return [*own, *sorted((found | OURS.keys()) - set(own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name; None if there is none.

        One that cannot be had is replaced by one that says why.
        """
        return super().get_command(ctx, cmd_name) or _other_command(cmd_name)


def _other_command(name: str) -> Any:
    found = [*entry_points(group=GROUP, name=name)]
    if found:
        return _loaded(found[0])
    if name in OURS:
        return _absent(name, f"the command {name!r} is in the distribution {OURS[name]}; allowed: {_install(name)}")
    return None


def _loaded(entry: EntryPoint) -> Any:
    try:
        loaded = entry.load()
    except (ImportError, AttributeError) as error:
        distribution = entry.dist.name if entry.dist else entry.value
        return _absent(entry.name, f"the command {entry.name!r} of {distribution} cannot be loaded: {error}")
    return _command(entry.name, loaded)


def _command(name: str, loaded: Any, **settings: Any) -> Any:
    app = loaded
    if not isinstance(loaded, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(name, **settings)(loaded)
    command = typer.main.get_command(app)
    command.name = name
    return command


def _absent(name: str, reason: str) -> Any:
    ignored = {"ignore_unknown_options": True}
    return _command(name, _refusal(reason), help=f"Not here: {reason}.", context_settings=ignored)


def _refusal(reason: str) -> Callable[..., None]:
    def refuse(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        raise NotFoundError(reason)

    return refuse


def _install(name: str) -> str:
    # Not by the name of the distribution alone: no index of packages has it.
    return f"pip install ./packages/{name} in a checkout of Tarry"
