"""Commands of other distributions, found by their entry points in the group ``tarry.commands``.

An entry point names a command and leads to its function, or to a ``typer.Typer`` of several. They are looked up when
such a command is named, or all are listed: a look reads the metadata of everything that is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from tarry.base.errors import NotFoundError
from tarry.base.extras import install
from tarry.cli.tls_options import add_tls_options

GROUP = "tarry.commands"
OURS = {"demo": "tarry-demo", "relay": "tarry-relay"}
"""Commands of this repository's distributions, which are listed also where they are not installed."""


@dataclass(frozen=True)
class Offer:
    """A function that is to be a command, or a ``typer.Typer`` of several, and Typer's settings for it."""

    made_of: Any
    settings: Mapping[str, Any] = field(default_factory=dict)


def offers(*functions: Callable[..., None]) -> dict[str, Offer]:
    """Return functions as commands of their names: ``audit_log`` is ``audit-log``."""
    return {each.__name__.strip("_").replace("_", "-"): Offer(each) for each in functions}


class CommandGroup(typer.core.TyperGroup):
    """The commands that are offered, and then those of other distributions. Each is made when it is named."""

    def __init__(self, **how: Any) -> None:
        """Make a group without commands."""
        super().__init__(**how)
        self._offers: Mapping[str, Offer] = {}

    def offer(self, commands: Mapping[str, Offer]) -> None:
        """Have these commands, by their names. Those that connect to a broker get the options of TLS, too."""
        self._offers = commands

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        found = {entry.name for entry in entry_points(group=GROUP)}
        return [*self._offers, *sorted((found | OURS.keys()) - self._offers.keys())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name; None if there is none.

        One that cannot be had is replaced by one that says why.
        """
        offered = self._offers.get(cmd_name)
        if offered is None:
            return _other_command(cmd_name)
        if cmd_name not in self.commands:
            made = self.commands[cmd_name] = _command(cmd_name, offered.made_of, **offered.settings)
            add_tls_options(made)
        return self.commands[cmd_name]


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
    _unwrap(command)
    return command


def _unwrap(command: Any) -> None:
    """Join the lines of a help's paragraphs.

    Typer does that with the first one alone; the lines of others would be broken twice. Those that begin with a
    backspace stay as they are, as Click has it.
    """
    if command.help:
        parts = command.help.split("\n\n")
        command.help = "\n\n".join(each if each.startswith("\b") else " ".join(each.split()) for each in parts)
    for each in getattr(command, "commands", {}).values():
        _unwrap(each)


def _absent(name: str, reason: str) -> Any:
    ignored = {"ignore_unknown_options": True}
    return _command(name, _refusal(reason), help=f"Not here: {reason}.", context_settings=ignored)


def _refusal(reason: str) -> Callable[..., None]:
    def refuse(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        raise NotFoundError(reason)

    return refuse


def _install(name: str) -> str:
    return install(OURS[name])
