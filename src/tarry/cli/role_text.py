"""The role of a cache's process, as text for people: whose standby it is, since when.

A standby has no port, so who asks at its address is refused, as where nothing runs. :func:`refused` tells them apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tarry.base.delay import format_ms
from tarry.base.endpoint import split_addresses
from tarry.base.errors import UnavailableError
from tarry.cli import output
from tarry.link.credentials import DATA_DEFAULT, is_here

Role = Mapping[str, Any]
_WAYS = {
    "auto": "by itself, when the owner is silent or hands over, and when it is told",
    "manual": "when it is told: tarry takeover",
}


def print_role(role: Role, *, json: bool) -> None:
    """Print it for people, or all of it as JSON."""
    if json:
        output.json_line(role)
        return
    for line in role_lines(role):
        output.line(line)


def role_lines(role: Role) -> Iterator[str]:
    """Yield what there is to know, a line each; ``role``: see :func:`tarry.log.objects.role.read_role`."""
    yield f"{headline(role)}, process {role['process']}"
    yield from _owner_lines(role) if role["role"] == "owner" else _standby_lines(role)
    error = role["bucket"]["error"]
    yield f"bucket    {'answers' if error is None else f'gives no answer: {error}'}"
    yield f"requests  {', '.join(f'{count:,} {kind}' for kind, count in role['requests'].items())}"


def headline(role: Role) -> str:
    """Return which role it has of which logs, and since when."""
    return f"{role['role']} of {role['log']} since {format_ms(role['since_ms'])}"


def owner_of(role: Role) -> str:
    """Return who owns the logs, as a standby knows."""
    owner = role["owner"]
    if owner is None:
        return "none is known yet"
    heard_ms = max(0, role["written_ms"] - owner["heard_ms"] + role["age_ms"])
    since_ms = owner.get("since_ms")  # a process of before has none
    since = "" if since_ms is None else f", followed since {format_ms(since_ms)}"
    return f"{owner['who']} (epoch {owner['epoch']}{since}), heard of {heard_ms / 1000:.1f} s ago"


def _standby_lines(role: Role) -> Iterator[str]:
    yield f"owner     {owner_of(role)}"
    if behind := role["behind"]:
        yield f"behind    {behind['rounds']:,} rounds, {behind['ms'] / 1000:.1f} s"
    yield f"takeover  {role['takeover']}: {_WAYS[role['takeover']]}"
    if role["problem"]:
        yield f"problem   {role['problem']}"


def _owner_lines(role: Role) -> Iterator[str]:
    places = ", ".join(f"{front} on {address}" for front, address in role["addresses"].items())
    yield f"epoch     {role['epoch']}"
    since_ms = role["serving_ms"]
    yield "serves    " + ("not yet" if since_ms is None else f"{places or 'no port'}, since {format_ms(since_ms)}")
    yield f"lease     {'messages may be handed out' if role['leased'] else 'nothing is handed out now'}"


def refused(endpoint: str, error: UnavailableError) -> str:
    """Return why nobody answers at an endpoint: there may be a standby, in the directory of the settings."""
    if not any(map(is_here, split_addresses(endpoint))):
        return str(error)
    from tarry.log.objects.role import read_role

    data = Path(os.environ.get("TARRY_DATA") or DATA_DEFAULT)
    role = read_role(data)
    if role is None or role["role"] != "standby":
        return f"{error}. A standby has no port; tarry status --data DIR shows one"
    return f"{error}. Here is a {headline(role)}, and the owner is {owner_of(role)}: tarry status --data {data}"
