"""CloudEvents 1.0: the attributes of an event, checked, and as properties of a message.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md. An attribute is the property ``ce_NAME``, and
``datacontenttype`` is ``content-type``: names that the Kafka binding of CloudEvents has for its headers. So an event
keeps its attributes whichever way it leaves. Types are not kept: a number or a truth value is a text from then on, as
in each binding that has headers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from tarry.base.errors import InvalidMessageError
from tarry.base.printable import shown

VERSION = "1.0"
PREFIX = "ce_"
CONTENT_TYPE = "content-type"
"""The property of a message that names the type of its body."""
OWN = "tarry"
"""Extension attributes that begin so are for Tarry, and go no further."""
DUE, DELAY, KEY = f"{OWN}due", f"{OWN}delay", f"{OWN}key"
REQUIRED = ("specversion", "id", "source", "type")
ID_BYTES_MAX = 255

NAME = re.compile("[a-z0-9]{1,64}")
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_TIME = re.compile(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\.[0-9]+)?"
    r"([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_NO_SPACE = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """An event; checked.

    Raises:
        InvalidMessageError: names the attribute and what is allowed.
    """

    attributes: Mapping[str, str]
    """All but ``datacontenttype``, with ``specversion``."""
    content_type: str | None
    data: bytes

    def __post_init__(self) -> None:
        given = self.attributes
        if given.get("specversion") != VERSION:
            raise InvalidMessageError(f"specversion is {_shown(given.get('specversion'))}; allowed: {VERSION!r}")
        for name in REQUIRED:
            if not given.get(name):
                raise InvalidMessageError(f"{name} is {_shown(given.get(name))}; allowed: a text that is not empty")
        for name, value in given.items():
            _check(name, value)
        if self.content_type is not None and (not self.content_type or _FORBIDDEN.search(self.content_type)):
            raise InvalidMessageError(f"datacontenttype is {shown(self.content_type)}; allowed: a media type")

    @property
    def id(self) -> str:
        """An id for its message: source and id together are those of one event, whoever sends it again."""
        text = f"{self.attributes['source']} {self.attributes['id']}"
        return text if len(text.encode()) <= ID_BYTES_MAX else blake2b(text.encode(), digest_size=32).hexdigest()

    @property
    def own(self) -> dict[str, str]:
        """The attributes that are for Tarry, by name."""
        return {name: value for name, value in self.attributes.items() if name.startswith(OWN)}

    @property
    def properties(self) -> dict[str, str]:
        """The properties that keep the rest of it, beside the body."""
        kept = {PREFIX + name: value for name, value in self.attributes.items() if not name.startswith(OWN)}
        return kept if self.content_type is None else {**kept, CONTENT_TYPE: self.content_type}


def attributes_in(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of the event that a message is, whoever has sent it; empty: it is none."""
    found = {
        name.removeprefix(PREFIX): value
        for name, value in properties.items()
        if name.startswith(PREFIX) and value and NAME.fullmatch(name.removeprefix(PREFIX))
    }
    return {**found, "specversion": VERSION} if all(name in found for name in REQUIRED[1:]) else {}


def _check(name: str, value: str) -> None:
    if not NAME.fullmatch(name) or name in ("data", "datacontenttype"):
        raise InvalidMessageError(f"{shown(name)} is no name of an attribute; allowed: a-z and 0-9, up to 64")
    if name.startswith(OWN) and name not in (DUE, DELAY, KEY):
        raise InvalidMessageError(f"{name} is no attribute of Tarry's; allowed: {DUE}, {DELAY}, {KEY}")
    if _FORBIDDEN.search(value):
        raise InvalidMessageError(f"{name} is {shown(value)}; allowed: no control characters and no half surrogates")
    if name == "time" and not _TIME.fullmatch(value):
        raise InvalidMessageError(f"time is {shown(value)}; allowed: RFC 3339, as in 2030-01-01T00:00:00Z")
    if name in ("source", "dataschema") and not _NO_SPACE.fullmatch(value):
        raise InvalidMessageError(f"{name} is {shown(value)}; allowed: a URI")
    if name in ("subject", "dataschema") and not value:
        raise InvalidMessageError(f"{name} is empty; allowed: a text, or to leave it out")


def _shown(value: str | None) -> str:
    return "missing" if value is None else shown(value)
