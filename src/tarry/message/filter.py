"""Filters: the messages of its topic that a group wants, written as a short text.

Two languages, as in RocketMQ. A **tag expression** names tags:

    *                 every message, tagged or not; so does the empty text
    A                 messages with the tag A
    A || B            with A or B
    A && B            with A and B, as QMQ has it; && binds tighter than ||

The tag of a message is one text. One that is several tags has ``||`` between them, ``A||B``, which no RocketMQ tag can
contain: a message without it has exactly one tag, which is compared as it is, blanks and case included. Blanks around
the parts of an expression, and empty parts, are nothing. A message without a tag matches ``*`` only.

To RocketMQ, ``a & b`` and ``a AND b`` are one tag of that name, and ``a ||`` is ``a``. Who writes that in Tarry's own
API means something else, or has lost a tag on the way: so it is refused there (:func:`check_meant`). ``tags:`` before
an expression says that its tags are written so, as RocketMQ's fronts do for their clients (:func:`as_tags`).

A **condition** over properties begins with ``sql:``, and is RocketMQ's SQL92 (:mod:`tarry.message.filter_conditions`):

    sql: price > 3 AND region IN ('eu', 'us') AND (a IS NULL OR NOT b = 'x')

- A property's name is case sensitive; one that is no word, or a keyword, is quoted: ``"order-id"``. ``TAGS`` is the
  tag.
- Properties are texts. Beside a number, and beside ``< <= > >= BETWEEN``, they are numbers, and NULL if they are none
  (``'5.50'`` is above 5, ``'abc'`` neither above nor below); beside a text they are compared as they are written
  (``'05'`` is not ``'5'``); beside ``TRUE`` or ``FALSE``, anything but "true" in any case is false.
- What is compared with a property that a message lacks is neither true nor false; a message matches if all is true.
- NOT is SQL's, and turns the whole comparison after it.
- Unlike in RocketMQ: no comments; ``NOT (a CONTAINS 'x')`` does not match a message without ``a``; and there are
  ``!=``, numbers in IN, and ``LIKE 'a%' [ESCAPE '!']`` (case sensitive; of a text with a NUL, up to that).
"""

from __future__ import annotations

import re
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.errors import InvalidArgumentError
from tarry.base.printable import shown
from tarry.base.types import Mask
from tarry.message.filter_sql import SqlFilter
from tarry.message.reserved import ONLY, values_of

TEXT_MAX = 16_384
"""Characters of a filter."""
EVERYTHING = "*"
CONDITION = "sql:"
"""Prefix of a condition."""
TAGS = "tags:"
"""Prefix of a tag expression whose tags are as they are written, whatever they look like."""
_OPERATOR = re.compile(r"[&|]|[\0- ](?:and|or)(?:[\0- ]|$)|^(?:and|or)[\0- ]|^(?:sql|tags)[\0- ]*:", re.IGNORECASE)
"""Text in a tag that is more likely meant to join two, or to be a prefix."""
_TAG_MISSING = "a tag is needed on each side of || and &&"
_ALLOWED = f"'*', 'A || B', 'A && B', or 'sql:' and a condition, in up to {TEXT_MAX} characters"


class Filter(Protocol):
    """Says which messages a group wants; made by :func:`parse_filter`. Any thread may use it."""

    @property
    def text(self) -> str:
        """Text as stored and shown: what was parsed, without blanks around it; ``*`` for the empty text."""

    @property
    def matches_all(self) -> bool:
        """True if it is ``*``: then :meth:`mask` need not be called."""

    def mask(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Mark the matching rows of ``batch`` (:data:`tarry.message.schema.SCHEMA`).

        Raises:
            InvalidArgumentError: a condition took too long
                (:data:`tarry.message.filter_sql.EVALUATION_S_MAX`).
        """


def parse_filter(text: str) -> Filter:
    """Parse a filter; the languages are in the module's docstring.

    Raises:
        InvalidArgumentError: it describes none; says where and why, and what is allowed.
    """
    if not isinstance(text, str) or len(text) > TEXT_MAX or not _storable(text):
        raise InvalidArgumentError(f"filter {shown(text)}; allowed: {_ALLOWED}")
    stripped = text.strip(_BLANKS) or EVERYTHING
    return SqlFilter(stripped, stripped[len(CONDITION) :]) if stripped.startswith(CONDITION) else TagFilter(stripped)


def is_condition(text: str | None) -> bool:
    """Return whether a filter, as it is stored, is a condition: one that takes CPU time for each message."""
    return text is not None and text.startswith(CONDITION)


def check_meant(text: str) -> None:
    """Check that no tag of a filter looks like two tags that something joins, and that no tag is missing.

    Raises:
        InvalidArgumentError: one does, or is; says how to write what may be meant.
    """
    stripped = text.strip(_BLANKS)
    if stripped.startswith((CONDITION, TAGS)):
        return
    if _lacks_tag(stripped):
        raise InvalidArgumentError(f"filter {shown(text)}: {_TAG_MISSING}; allowed: {_ALLOWED}")
    if (tag := _doubtful_tag(stripped)) is not None:
        raise InvalidArgumentError(
            f"filter {shown(text)}: {shown(tag)} is one tag; allowed: 'A || B' for either tag, 'A && B' for both, "
            f"'{CONDITION}' and a condition, or '{TAGS}' and the expression where a tag is written so"
        )


def as_tags(expression: str) -> str:
    """Return a filter that takes the tags of a RocketMQ tag expression as they are written."""
    stripped = expression.strip(_BLANKS)
    needs_prefix = stripped.startswith(TAGS) or _lacks_tag(stripped) or _doubtful_tag(stripped) is not None
    return f"{TAGS}{stripped}" if needs_prefix else stripped


def _lacks_tag(expression: str) -> bool:
    """Return whether an operator has no tag on one side; the empty expression has no operator."""
    sides = (side for way in expression.split("||") for side in way.split("&&"))
    return expression != "" and any(not side.strip(_BLANKS) for side in sides)


def _doubtful_tag(expression: str) -> str | None:
    tags = (tag for way in _tags(expression, "||") for tag in _tags(way, "&&"))
    return next((tag for tag in tags if _OPERATOR.search(tag)), None)


def unwanted_by(group: str, wanted: Filter | None, batch: pa.RecordBatch) -> Mask:
    """Mark the rows of ``batch`` that this group does not want.

    They are for another group, or do not match its filter. ``batch``: :data:`tarry.message.schema.SCHEMA`;
    ``wanted`` None: the group has no filter.

    Raises:
        InvalidArgumentError: as :meth:`Filter.mask`.
    """
    unwanted = np.zeros(batch.num_rows, np.bool_)
    only = values_of(batch.column("properties"), ONLY)
    if only is not None:
        rows, groups = only
        unwanted[rows] = [name != group for name in groups.to_pylist()]
    return unwanted if wanted is None else unwanted | ~np.asarray(wanted.mask(batch))


def _storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return "\0" not in text


class TagFilter:
    """A tag expression: some sets of tags, of which a message must have one whole set."""

    def __init__(self, text: str) -> None:
        """Read ``text``, which has no blanks around it.

        Raises:
            InvalidArgumentError: it names no tag, or ``*`` among others.
        """
        self.text = text
        text = text.removeprefix(TAGS).strip(_BLANKS)
        self.matches_all = text == EVERYTHING
        ways = [frozenset(_tags(way, "&&")) for way in _tags(text, "||")]
        starred = any(EVERYTHING in way for way in ways) and not self.matches_all
        if not ways or frozenset() in ways or starred:
            wrong = "'*' stands alone" if starred else _TAG_MISSING
            raise InvalidArgumentError(f"filter {shown(self.text)}: {wrong}; allowed: {_ALLOWED}")
        self._ways = ways
        self._alone = pa.array(sorted(tag for way in ways if len(way) == 1 for tag in way), pa.string())

    def __str__(self) -> str:
        return self.text

    def mask(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """See :meth:`Filter.mask`."""
        if self.matches_all:
            return np.ones(batch.num_rows, np.bool_)
        tag = batch.column("tag")
        matching = np.array(pc.is_in(tag, self._alone))  # false where there is no tag; a copy, to be written to
        several = pc.match_substring(tag, "||").fill_null(False)
        texts = tag.filter(several).to_pylist()
        if texts:
            sets = {text: frozenset(_tags(text, "||")) for text in set(texts)}
            wanted = {text: any(way <= tags for way in self._ways) for text, tags in sets.items()}
            matching[np.array(several)] = [wanted[text] for text in texts]
        return matching


# What Java's trim takes off.
_BLANKS = "".join(map(chr, range(0x21)))


def _tags(text: str, between: str) -> list[str]:
    return [part for part in (part.strip(_BLANKS) for part in text.split(between)) if part]
