"""The broker that a shard of a store is of: a property of the table names it, whatever its files are.

Two brokers on one shard would both deliver all that is in it. Data directories have a lock each, which says nothing of
a store that both name; and ``committed_seq``, by which a broker knows a store that is not its own, is 0 as long as only
bulk jobs have filled it. So a broker writes its id into the table when it opens it first, and any other one is refused:
by the id of its data directory, which goes where the directory goes, and not by a lease, so that a broker that is down
for a month, or comes back on another machine, finds its store as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tarry.base.errors import CorruptError, LockedError
from tarry.store.place import Place

_PREFIX = "tarry.owner."
_ID = "[0-9a-f]{32}"


@dataclass(frozen=True, slots=True)
class Owner:
    """A broker, by the ``id`` of its data directory; ``host`` and ``data`` tell people where it ran last."""

    id: str
    host: str
    data: str

    def property_of(self, shard: int) -> dict[str, str]:
        """Return the property of a table that names this owner."""
        return {owner_key(shard): json.dumps(asdict(self))}

    def check(self, uri: str, shard: int, properties: Mapping[str, str], relay_version: int | None = None) -> None:
        """Check that the shard may be this broker's.

        Raises:
            LockedError: by the table's properties, the shard is another broker's, or a relay wrote to it.
            CorruptError: its property names no broker.
        """
        allowed = "allowed: a store, or a shard of it (setting shard), of this broker's own"
        if relay_version is not None:
            raise LockedError(f"shard {shard} of the store at {uri} is a relay's; {allowed}")
        text = properties.get(owner_key(shard))
        if text is None:
            return
        owner = _read(text, uri)
        if owner.id != self.id:
            raise LockedError(
                f"shard {shard} of the store at {uri} is the broker's that ran on {owner.host} with the data directory "
                f"{owner.data} (its id is {owner.id}, this one's {self.id}), and two would both deliver it; {allowed}. "
                "Where that directory is gone for good: docs/operations.md, 'Another broker's store'"
            )


def _read(text: str, uri: str) -> Owner:
    """Return the owner that a property names.

    Raises:
        CorruptError: it names none: the table's log, which has no checksums, was changed.
    """
    try:
        owner = Owner(**json.loads(text))
        is_one = re.fullmatch(_ID, owner.id) is not None
    except (ValueError, TypeError):
        is_one = False
    if not is_one:
        raise CorruptError(
            f"the log of the store at {uri} is damaged: its owner is {text!r:.200}; allowed: an id of 32 hexadecimal "
            "digits, a host and a data directory"
        )
    return owner


def owner_key(shard: int) -> str:
    """Return the name of the property."""
    return f"{_PREFIX}{shard}"


def intake_id(shard: int) -> str:
    """Return the name of the app transaction whose version is a shard's ``committed_seq``."""
    return f"intake-{shard}"


def bulk_id(shard: int) -> str:
    """Return the name of the app transaction whose version is a shard's last committed bulk attempt."""
    return f"bulk-{shard}"


def relay_numbers_id(shard: int) -> str:
    """Return the name of the app transaction that a relay's shard has, and no broker's."""
    return f"relay-{shard}-numbers"


def check_before_mending(place: Place, shard: int, owner: Owner) -> None:
    """Refuse another broker's store before anything of it is changed.

    Mending may remove files that the other broker, or its pipeline, writes at this moment. A store that cannot be read
    yet is judged after it was mended.

    Raises:
        LockedError: it is another broker's.
    """
    try:
        table = DeltaTable(place.uri)
    except (DeltaError, OSError):
        return
    owner.check(place.uri, shard, configuration_of(table))


def owners_in(place: Place) -> list[Owner]:
    """Return the brokers that a table's shards are of; none if it cannot be read. Raises CorruptError."""
    try:
        properties = configuration_of(DeltaTable(place.uri))
    except (DeltaError, OSError):
        return []
    return [_read(text, place.uri) for name, text in properties.items() if name.startswith(_PREFIX)]


def configuration_of(table: DeltaTable) -> dict[str, str]:
    """Return the properties of a table, as it was read last."""
    return {name: value for name, value in table.metadata().configuration.items() if value is not None}
