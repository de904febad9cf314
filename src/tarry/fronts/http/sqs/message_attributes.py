"""Message attributes: checked, stored as properties, given back, with an MD5 as SDKs compute it.

An attribute is a property of the same name, so that filters and consumers of other protocols see it. Data types other
than ``String`` are in one more property; so is what the front has to remember of a message. Those have names with a
slash, which no attribute has.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import md5
from typing import Any, NamedTuple

from tarry.fronts.http.sqs.errors import SqsError, invalid
from tarry.message.topics import RESERVED

OWN = "sqs/"
"""Properties that begin so are the front's."""
TYPES, ID, SENT, SOURCE, TRACE, SENDER, GROUP_ID, DEDUPLICATION = (
    f"{OWN}{name}" for name in ("types", "id", "sent", "source", "trace", "sender", "group", "deduplication")
)
ATTRIBUTES_MAX = 10
NAME_CHARS_MAX = 256
LISTS = ("StringListValues", "BinaryListValues", "StringListValue", "BinaryListValue")
"""Fields of an attribute that AWS's model has, and that it takes nowhere; forms name the latter two."""

_NAME = re.compile(r"(?!(?i:aws|amazon)\.)(?!\.)[-_A-Za-z0-9]+(\.[-_A-Za-z0-9]+)*")
_TYPE = re.compile(r"(String|Number|Binary)(\.[^\x00-\x1f\ud800-\udfff\ufffe\uffff]{1,250})?")
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,4})?")
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class Attribute(NamedTuple):
    """A message attribute; the value of a binary one is bytes."""

    name: str
    kind: str
    value: str | bytes

    @property
    def raw(self) -> bytes:
        """The value as bytes."""
        return self.value if isinstance(self.value, bytes) else self.value.encode()

    @property
    def size(self) -> int:
        """The bytes of it that count against the limit of a message."""
        return len(self.name.encode()) + len(self.kind.encode()) + len(self.raw)

    def form(self) -> dict[str, Any]:
        """Return it as in an answer."""
        if isinstance(self.value, bytes):
            return {"DataType": self.kind, "BinaryValue": base64.b64encode(self.value).decode()}
        return {"DataType": self.kind, "StringValue": self.value}


def check_text(text: str) -> None:
    """Check the characters of a body or a value: those that XML may have.

    Raises:
        SqsError: there is another one.
    """
    if _FORBIDDEN.search(text):
        raise SqsError(
            "InvalidMessageContents",
            "Invalid characters were found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | "
            "#xE000 to #xFFFD | #x10000 to #x10FFFF",
        )


def is_allowed(text: str) -> bool:
    """Return whether all characters of a text are those that SQS allows."""
    return not _FORBIDDEN.search(text)


def text_in(properties: Mapping[str, str], name: str) -> str | None:
    """Return a property of the front's; None: it is not there, or is no text that SQS allows."""
    text = properties.get(name)
    return text if text and is_allowed(text) else None


def attributes_of(given: Any, *, system: bool = False) -> list[Attribute]:
    """Return the attributes in a request; ``system``: the few that AWS defines.

    Raises:
        SqsError: one is not allowed.
    """
    if not given:
        return []
    if not isinstance(given, Mapping):
        raise invalid("MessageAttributes must be a map.")
    if len(given) > ATTRIBUTES_MAX:
        raise invalid(f"Number of message attributes [{len(given)}] exceeds the allowed maximum [{ATTRIBUTES_MAX}].")
    found = [_attribute(name, value) for name, value in given.items()]
    unknown = [each.name for each in found if system and each.name != "AWSTraceHeader"]
    if unknown:
        raise invalid(f"Message system attribute name '{unknown[0]:.60}' is invalid; allowed: AWSTraceHeader.")
    return found


def _attribute(name: Any, given: Any) -> Attribute:
    if not isinstance(name, str) or len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise invalid(
            f"The message attribute name '{name!s:.60}' is invalid. Attribute name can contain A-Z, a-z, 0-9, "
            "underscore (_), hyphen (-), and period (.) characters."
        )
    if name.startswith(RESERVED):
        raise invalid(f"The message attribute name '{name:.60}' is invalid: {RESERVED}* is reserved by the broker.")
    kind = given.get("DataType") if isinstance(given, Mapping) else None
    if not isinstance(kind, str) or not kind:
        raise invalid(f"The message attribute '{name}' must contain a non-empty message attribute type.")
    if not _TYPE.fullmatch(kind):
        raise invalid(
            f"The message attribute '{name}' has an invalid message attribute type, the set of supported type "
            "prefixes is Binary, Number, and String."
        )
    base = kind.partition(".")[0]
    value = _only_value(name, base, given)
    if not isinstance(value, str) or not value:
        raise invalid(f"The message attribute '{name}' must contain a non-empty message attribute value.")
    if base == "Binary":
        try:
            return Attribute(name, kind, base64.b64decode(value, validate=True))
        except (ValueError, binascii.Error):
            raise invalid(f"The value of message attribute '{name}' is not base64.") from None
    check_text(value)
    if base == "Number" and not _NUMBER.fullmatch(value):
        raise invalid(f"Could not cast message attribute '{name}' value to number.")
    return Attribute(name, kind, value)


def _only_value(name: str, base: str, given: Mapping[str, Any]) -> Any:
    """Return the one value of an attribute, in the field of its type.

    Raises:
        SqsError: it has another one, which would be lost.
    """
    if any(given.get(field) for field in LISTS):
        raise SqsError(
            "UnsupportedOperation", "Message attribute list values in SendMessage operation are not supported."
        )
    own, other = ("Binary", "String") if base == "Binary" else ("String", "Binary")
    if given.get(f"{other}Value"):
        raise invalid(f"The message attribute '{name}' with type '{base}' must use field '{own}'.")
    return given.get(f"{own}Value")


def digest_of(attributes: Iterable[Attribute]) -> str | None:
    """Return the MD5 of attributes, as SDKs check it; None: there are none."""
    digest = None
    for each in sorted(attributes):
        digest = digest or md5(usedforsecurity=False)
        transport = b"\x02" if isinstance(each.value, bytes) else b"\x01"
        for part in (each.name.encode(), each.kind.encode()):
            digest.update(len(part).to_bytes(4) + part)
        raw = each.raw
        digest.update(transport + len(raw).to_bytes(4) + raw)
    return None if digest is None else digest.hexdigest()


# -- as properties -----------------------------------------------------------------------------------------------------


def as_properties(attributes: Sequence[Attribute]) -> list[tuple[str, str]]:
    """Return attributes as properties of a message."""
    pairs = [
        (each.name, each.value if isinstance(each.value, str) else base64.b64encode(each.value).decode())
        for each in attributes
    ]
    types = {each.name: each.kind for each in attributes if each.kind != "String"}
    return [*pairs, (TYPES, json.dumps(types, separators=(",", ":")))] if types else pairs


def from_properties(properties: Mapping[str, str]) -> list[Attribute]:
    """Return the attributes of a message, whoever has sent it.

    Properties with a name or a value that SQS does not allow are left out.
    """
    types = _types_of(properties.get(TYPES))
    found = []
    for name, text in properties.items():
        if name.startswith((OWN, RESERVED)) or not text or not is_allowed(text) or not _NAME.fullmatch(name):
            continue
        kind = types.get(name, "String")
        binary = _binary(text) if kind.startswith("Binary") else None
        found.append(Attribute(name, kind if kind[:6] != "Binary" or binary else "String", binary or text))
    return found


def _types_of(text: str | None) -> dict[str, str]:
    """Return data types by attribute; none where somebody else has written something else there."""
    try:
        types = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    is_one = isinstance(types, dict) and all(isinstance(kind, str) and _TYPE.fullmatch(kind) for kind in types.values())
    return types if is_one else {}


def _binary(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None


def wanted(attributes: Iterable[Attribute], names: Sequence[str]) -> list[Attribute]:
    """Return those attributes that a receive asks for.

    By name, by the beginning of one (``foo.*``), or all.
    """
    if not names:
        return []
    if "All" in names or ".*" in names:
        return list(attributes)
    beginnings = tuple(name[:-2] for name in names if name.endswith(".*"))
    return [each for each in attributes if each.name in names or (beginnings and each.name.startswith(beginnings))]
