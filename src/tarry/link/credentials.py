"""The token that a client shows to a broker: given by the program, or found where the user keeps it.

In this order: the argument ``token``; ``TARRY_TOKEN``; the file of ``TARRY_TOKEN_FILE``; the entry of the broker's
address in ``credentials.toml``; for a broker of this machine, ``admin.token`` in the data directory that the settings
name. Looked for again at each connection, so that a token that is exchanged is taken up.

    # ~/.config/tarry/credentials.toml, or $XDG_CONFIG_HOME/tarry/credentials.toml
    ["broker.example:7611"]
    token = "tarry_…"
    ["127.0.0.1:7611"]
    token_file = "/var/lib/tarry/admin.token"
"""

from __future__ import annotations

import json
import os
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

from tarry.base.endpoint import parse_address, socket_path
from tarry.base.errors import InvalidArgumentError
from tarry.base.exposure import is_loopback

ADMIN_TOKEN_FILE = "admin.token"
"""In a broker's data directory: the token of whoever may read that directory."""
DATA_DEFAULT = "tarry-data"


def find_token(address: str) -> str | None:
    """Return the token for a broker; None: there is none.

    Raises:
        InvalidArgumentError: a file that was named cannot be read, or is not what it should be.
    """
    token = os.environ.get("TARRY_TOKEN")
    if token and token.strip():
        return token.strip()
    name = os.environ.get("TARRY_TOKEN_FILE")
    if name:
        return token_in(Path(name))
    entry = _entry_of(_entries(credentials_path()), address)
    if isinstance(entry, dict):
        if isinstance(entry.get("token"), str):
            return str(entry["token"]).strip()
        if isinstance(entry.get("token_file"), str):
            return token_in(Path(entry["token_file"]))
    if _is_here(address):
        # Another user's directory, or none, is no reason to fail: the broker may ask nobody.
        with suppress(OSError, UnicodeDecodeError):
            return (Path(os.environ.get("TARRY_DATA") or DATA_DEFAULT) / ADMIN_TOKEN_FILE).read_text().strip() or None
    return None


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


def keeps_token(address: str) -> bool:
    """Return whether the user's ``credentials.toml`` has a token for a broker."""
    return _entry_of(_entries(credentials_path()), address) is not None


def keep_token(address: str, token: str) -> Path:
    """Write a token into the user's ``credentials.toml``; return the file's path."""
    path = credentials_path()
    entries = _entries(path)
    entries[_key(address)] = {"token": token}
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
    if key in entries or not _is_here(address) or socket_path(key) is not None:
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


def _is_here(address: str) -> bool:
    place = _key(address)
    return socket_path(place) is not None or is_loopback(parse_address(place)[0])
