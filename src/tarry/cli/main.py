"""The command ``tarry`` and how it ends; its commands are beside this file, and in other packages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated

import typer
import typer.main

from tarry.base.errors import TarryError
from tarry.base.version import VERSION, commit
from tarry.cli import (
    advance,
    audit,
    audit_log,
    backup,
    bridge,
    change,
    dead,
    dump,
    gateway,
    group,
    history,
    identity,
    listing,
    look,
    migrate,
    push,
    receive,
    roles,
    send,
    serve,
    size,
    token,
    top,
    topic,
    upkeep,
    verify,
    work,
)
from tarry.cli.exits import ExitCode, exit_code, report
from tarry.cli.plugins import CommandGroup, Offer, offers

app = typer.Typer(
    name="tarry",
    cls=CommandGroup,
    help="Delayed messages: hand one over now, and have it delivered on time.",
    epilog="Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 locked, 4 damaged data, 5 broker out of reach, "
    "6 refused for now, 7 disk failure, 8 not done, 9 not allowed, 10 another broker owns the logs, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
"""The command line without its commands: :func:`command` makes each of them when it is named."""
COMMANDS: dict[str, Offer] = {
    "serve": Offer(serve.serve, {"cls": serve.ServeCommand}),
    **offers(
        *(gateway.gateway, send.send, receive.receive, work.work),
        *(change.cancel, change.reschedule, change.find_key, change.jobs),
        *(
            look.pending,
            listing.list_,
            listing.peek,
            listing.forecast,
            look.status,
            top.top,
            dump.dump,
            verify.verify,
            migrate.migrate,
        ),
        *(upkeep.compact, upkeep.expire, roles.takeover, size.size, audit.audit, history.history),
        *(backup.backup, backup.restore),
        *(identity.whoami, identity.can, audit_log.audit_log, advance.advance),
    ),
    # As the client calls it.
    "schedule": Offer(send.send, {"hidden": True}),
    "group": Offer(group.app),
    "topic": Offer(topic.app),
    "dead": Offer(dead.app),
    "push": Offer(push.app),
    "token": Offer(token.app),
    "identity": Offer(identity.app),
    "bridge": Offer(bridge.app),
}


def _version(wanted: bool) -> None:
    if wanted:
        built_from = commit()
        typer.echo(f"tarry {VERSION}" + (f" ({built_from})" if built_from else ""))
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@cache
def command() -> CommandGroup:
    """Return the command line. It is kept: to make it takes longer than many a command."""
    group: CommandGroup = typer.main.get_command(app)  # type: ignore[assignment]
    group.offer(COMMANDS)
    return group


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; an expected error is one line, never a traceback."""
    try:
        # Not standalone: so that usage errors, too, are reported here and in the one way.
        code = command()(args=arguments, prog_name="tarry", standalone_mode=False)
    except TarryError as error:
        report(error.code, str(error))
        return exit_code(error)
    except BrokenPipeError:
        # Who reads our output has gone. Python would complain again when it flushes stdout at exit.
        sys.stdout = None
        return ExitCode.FAILED
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        report("os_error", f"{named}{error.strerror or error}")
        return ExitCode.FAILED
    except MemoryError:
        report("out_of_memory", "there is not enough memory for this")
        return ExitCode.FAILED
    except Exception as error:  # noqa: BLE001  what is not about usage is raised again
        return _usage(error, sys.argv[1:] if arguments is None else arguments)
    return code if isinstance(code, int) else ExitCode.OK


def _usage(error: Exception, arguments: Sequence[str]) -> int:
    """Report wrong usage as Typer does; its classes moved between versions, so they are known by name."""
    if type(error).__name__ == "Abort":
        return ExitCode.INTERRUPTED
    if not hasattr(error, "format_message"):
        raise error
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]
        return ExitCode.USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else _named(arguments)
    report("usage", f"{error.format_message()}{_as_setting(error, path)} See: {path} --help")
    return ExitCode.USAGE


def _named(arguments: Sequence[str]) -> str:
    """Return the command that the arguments name; the parser does not say at which it was."""
    path, at = ["tarry"], command()
    for argument in arguments:
        if argument.startswith("-"):
            continue
        found = at.get_command(None, argument) if hasattr(at, "get_command") else None
        if found is None:
            break
        path.append(argument)
        at = found
    return " ".join(path)


def _as_setting(error: Exception, path: str) -> str:
    """Return how to give what is no option of a server's, and a setting; most settings have no option."""
    name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
    is_gateway = path.endswith(" gateway")
    if type(error).__name__ != "NoSuchOption" or not (is_gateway or path.endswith(" serve")):
        return ""
    from tarry.fronts.registry import ServerConfig

    if name not in ServerConfig.model_fields:
        return ""
    if is_gateway and name not in gateway.allowed_settings():
        options = ", ".join(each.opts[0] for each in error.ctx.command.params)  # type: ignore[attr-defined]
        return f" It is the broker's setting: tarry serve --set {name}=VALUE; allowed here: {options}."
    return f" It is a setting: --set {name}=VALUE."
