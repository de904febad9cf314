"""``tarry takeover``, and what the process of a cache says of itself.

A standby has no port at which it could be asked.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tarry.base.errors import UnavailableError
from tarry.cli import output
from tarry.cli.options import Json, duration_ms

LOOK_S = 0.1


def living_role(data: Path) -> dict[str, Any]:
    """Return what the process of a cache says of itself.

    Raises:
        UnavailableError: none is there, or it has said nothing for some seconds.
    """
    from tarry.log.objects.role import read_role

    role = read_role(data)
    if role is None:
        raise UnavailableError(
            f"{data} has no standby, and no owner of logs in an object store, or it stands still; allowed: a directory "
            "in which tarry serve --log runs"
        )
    return role


def _role_of_told(data: Path) -> dict[str, Any]:
    try:
        return living_role(data)
    except UnavailableError as error:
        raise UnavailableError(f"the standby of {data} has ended while it took over; its log says why") from error


def takeover(
    data: Annotated[Path, typer.Option(metavar="DIR", help="The standby's directory.")],
    wait: Annotated[str, typer.Option(metavar="TIME", help="How long to wait until it serves.")] = "1m",
    json: Json = False,
) -> None:
    """Have the standby of this machine take over now, also from an owner that lives; wait until it serves.

    It may be done at any time: the former owner ends with exit code 10, and loses nothing that was acknowledged. Exit
    code 5 when there is no standby, or it cannot take over in time; it may do so later all the same.

    \b
    tarry takeover --data cache
    """
    from tarry.log.objects.role import tell_to_take_over

    begin_s, wait_s = time.monotonic(), duration_ms(wait, "--wait") / 1000
    role = living_role(data)
    was_owner = role["role"] == "owner"
    if not was_owner:
        if role["bucket"]["error"]:
            raise UnavailableError(f"the standby of {data} cannot take over: {role['bucket']['error']}")
        tell_to_take_over(data)
    while not (role["role"] == "owner" and role["serving_ms"]):
        time.sleep(LOOK_S)
        if time.monotonic() > begin_s + wait_s:
            why = role["bucket"]["error"] or role.get("problem") or "it has not said why; see its log"
            raise UnavailableError(f"the standby of {data} does not serve after {wait_s:g} s: {why}")
        role = _role_of_told(data)
    took_s = round(time.monotonic() - begin_s, 2)
    result = {"epoch": role["epoch"], "took_s": 0.0 if was_owner else took_s, "addresses": role["addresses"]}
    text = f"serving as the owner of epoch {role['epoch']}"
    output.result(result, f"{text} already" if was_owner else f"{text} after {took_s:g} s", json=json)
