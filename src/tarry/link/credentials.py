"""The token that a client shows to a broker: given by the program, or found where the user keeps it.

In this order: the argument ``token``; ``TARRY_TOKEN``; the file of ``TARRY_TOKEN_FILE``; the entry of the broker's
address in ``credentials.toml``; for a broker of this machine, ``admin.token`` in the data directory that the settings
name. Looked for again at each connection, so that a token that is exchanged is taken up.

Where a broker has several addresses, the first of them that has an entry counts, for all; and ``admin.token`` does
where all of them are of this machine.

    # ~/.config/tarry/credentials.toml, or $XDG_CONFIG_HOME/tarry/credentials.toml
    ["broker.example:7611"]
    token = "tarry_…"
    ["127.0.0.1:7611"]
    token_file = "/var/lib/tarry/admin.token"

The last two serve people at a shell. A program that finds one of an administrator there is told so in its log.
"""

from __future__ import annotations

import json
import logging
import os
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tarry.base.endpoint import parse_address, socket_path, split_addresses
from tarry.base.errors import InvalidArgumentError
from tarry.base.exposure import is_loopback

ADMIN_TOKEN_FILE = "admin.token"
"""In a broker's data directory: the token of whoever may read that directory."""
DATA_DEFAULT = "tarry-data"
_ADMIN = "admin"
"""In an entry of ``credentials.toml``: true for a token that ``tarry identity create --all`` has kept."""

log = logging.getLogger(__name__)


class FoundToken(NamedTuple):
    """A token, and where it comes from."""

    text: str
    admin_path: Path | None = None
    """The file, which nobody named, of an administrator's token; None: it was given, or is another's."""


def find_token(addresses: str) -> str | None:
    """Return the token for a broker; None: there is none. Raises as :func:`look_for_token`."""
    found = look_for_token(addresses)
    return None if found is None else found.text


def look_for_token(addresses: str) -> FoundToken | None:
    """Return the token for a broker, with the file that it comes from; None: there is none.

    ``addresses``: its address, or a list of all.

    Raises:
        InvalidArgumentError: a file that was named cannot be read, or is not what it should be.
    """
    token = os.environ.get("TARRY_TOKEN")
    if token and token.strip():
        return FoundToken(token.strip())
    name = os.environ.get("TARRY_TOKEN_FILE")
    if name:
        return FoundToken(token_in(Path(name)))
    every = split_addresses(addresses)
    if (kept := _kept(every)) is not None:
        return kept
    # An administrator of this machine is not shown to another one.
    if all(map(is_here, every)):
        # Another user's directory, or none, is no reason to fail: the broker may ask nobody.
        with suppress(OSError, UnicodeDecodeError):
            path = Path(os.environ.get("TARRY_DATA") or DATA_DEFAULT) / ADMIN_TOKEN_FILE
            if text := path.read_text().strip():
                return FoundToken(text, path)
    return None


class AdminTokenNotice:
    """Tells a program, once for each file, that it is an administrator by a token that nobody gave it."""

    def __init__(self) -> None:
        self._told: set[Path] = set()

    def __call__(self, address: str, path: Path) -> None:
        """Log that the token for a broker is that of ``path``."""
        if path not in self._told:
            self._told.add(path)
            log.warning(
                "no token was given for %s, so this program has an administrator's, of %s; "
                "give it its own by token, TARRY_TOKEN or TARRY_TOKEN_FILE",
                address,
                path.absolute(),
            )


def token_in(path: Path) -> str:
    """Return the token in a file.

    Raises:
        InvalidArgumentError: the file cannot be read.
    """
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"the token's file {path} cannot be read: {error}") from error


def credentials_path() -> Path:
    """Return the path of the user's ``credentials.toml``."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "tarry" / "credentials.toml"


def keeps_token(addresses: str) -> bool:
    """Return whether the user's ``credentials.toml`` has a token for a broker."""
    entries = _entries(credentials_path())
    return any(_entry_of(entries, address) is not None for address in split_addresses(addresses))


def keep_token(addresses: str, token: str) -> Path:
    """Write an administrator's token into the user's ``credentials.toml``; return the file's path.

    It is written for each of the addresses.
    """
    path = credentials_path()
    entries = _entries(path)
    for address in split_addresses(addresses):
        entries[_key(address)] = {"token": token, _ADMIN: True}
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    lines = [
        f"[{json.dumps(name)}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in entry.items())
        for name, entry in entries.items()
    ]
    temporary.touch(0o600)
    temporary.chmod(0o600)
    temporary.write_text("".join(lines))
    temporary.replace(path)
    return path


def _kept(every: list[str]) -> FoundToken | None:
    """Return the token of the first address that has one in the user's ``credentials.toml``."""
    path = credentials_path()
    entries = _entries(path)
    for address in every:
        entry = _entry_of(entries, address)
        if isinstance(entry, dict):
            if isinstance(entry.get("token"), str):
                return FoundToken(entry["token"].strip(), path if entry.get(_ADMIN) is True else None)
            if isinstance(entry.get("token_file"), str):
                return FoundToken(token_in(Path(entry["token_file"])))
    return None


def _entries(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error}") from error


def _entry_of(entries: dict[str, Any], address: str) -> Any:
    """Return the entry of an address, or of this machine by another name, as localhost and 127.0.0.1."""
    key = _key(address)
    if key in entries or not is_here(address) or socket_path(key) is not None:
        return entries.get(key)
    port = parse_address(key)[1]
    others = (name for name in entries if socket_path(name) is None and _is_loopback_place(name, port))
    return entries.get(next(others, key))


def _is_loopback_place(name: str, port: int) -> bool:
    try:
        host, its_port = parse_address(name)
    except InvalidArgumentError:
        return False
    return its_port == port and is_loopback(host)


def _key(address: str) -> str:
    """Return the address without what says that it is in TLS."""
    return address.removeprefix("tls://").partition("?")[0]


def is_here(address: str) -> bool:
    """Return whether an address is of this machine, by what it says."""
    place = _key(address)
    return socket_path(place) is not None or is_loopback(parse_address(place)[0])
