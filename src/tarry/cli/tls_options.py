"""The options of TLS of every command that connects to a broker: that has ``--endpoint``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer
import typer.main

ENDPOINT = "endpoint"
FILES = ("ca", "certificate", "key")


def add_tls_options(command: Any) -> None:
    """Add them to a command, or those of a group, that connect to a broker."""
    _add(_options(), command)


@cache
def _options() -> Sequence[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(_files)
    names = {f"tls_{name}" for name in FILES}
    return [each for each in typer.main.get_command(app).params if each.name in names]


def _files(
    tls_ca: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="PEM file of who signed its certificate; else TARRY_CA, or the system's."),
    ] = None,
    tls_certificate: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="PEM file of a certificate, if it asks for one; else TARRY_CERTIFICATE."),
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="PEM file of that one's private key; else TARRY_KEY.")
    ] = None,
) -> None:
    """Have the options made by Typer, whose own classes differ between versions."""


def _add(options: Sequence[Any], command: Any) -> None:
    for part in getattr(command, "commands", {}).values():
        _add(options, part)
    names = [parameter.name for parameter in command.params]
    if ENDPOINT in names:
        at = names.index(ENDPOINT) + 1
        command.params[at:at] = options
        command.callback = _in_tls(command.callback)


def _in_tls(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Have a command's address say the files of TLS, so that it is all that the command passes on."""

    def called(**given: Any) -> Any:
        from tarry.link.address import with_files

        files = {name: given.pop(f"tls_{name}") for name in FILES}
        known = {name: value for name, value in files.items() if value is not None}
        if given[ENDPOINT] is None and not known:
            return callback(**given)  # it is said elsewhere
        address = "" if given[ENDPOINT] is None else given[ENDPOINT]
        return callback(**{**given, ENDPOINT: with_files(address, known, "--tls-{}")})

    return called
