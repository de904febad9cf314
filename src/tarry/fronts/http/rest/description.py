"""The description of a route for OpenAPI and its page: from docstrings and types, never repeated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Schema = dict[str, Any]
"""A JSON Schema."""

Place = Literal["path", "query", "header"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A part of a path, or a field of a query or of the headers."""

    name: str
    where: Place
    schema: Schema
    text: str = ""
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class DescribedBody:
    """A body: of a request, or of an answer. ``by_type``: the schema of each media type that it may have."""

    text: str
    by_type: Mapping[str, Schema] = field(default_factory=dict)
    is_required: bool = True


@dataclass(frozen=True, slots=True)
class Description:
    """The description of one route.

    ``name`` is unique. ``answers`` are those that are no errors, by status. ``schemas``: the ones that ``$ref`` names.
    """

    name: str
    tag: str
    text: str
    parameters: tuple[Parameter, ...] = ()
    body: DescribedBody | None = None
    answers: Mapping[int, DescribedBody] = field(default_factory=dict)
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    errors: tuple[int, ...] = ()
    """Statuses of errors besides those of every route."""
    needs: str = ""
    """The right that it needs, once there are identities; empty: none."""

    @property
    def summary(self) -> str:
        """Its first sentence."""
        return re.split(r"(?<=[.;:])\s", self.text.replace("\n", " "), maxsplit=1)[0].rstrip(".;:")


_SECTION = re.compile(r"^(Args|Returns|Raises):\n", re.MULTILINE)
_ROLE = re.compile(r":(?:class|meth|func|data|mod|attr):`~?([^`]*)`")


def plain(text: str) -> str:
    """Return a docstring's words as Markdown: no roles, no modules' names."""
    text = _ROLE.sub(lambda role: f"`{role[1].rpartition('.')[2]}`", text)
    return text.replace("``", "`")


def text_of(kind: Any) -> tuple[str, dict[str, str]]:
    """Return the docstring of a class: its text, and the text of each argument."""
    import inspect

    parts = _SECTION.split(inspect.getdoc(kind) or "")
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    about = parts[0].strip()
    if returns := sections.get("Returns"):
        about += "\n\nReturns: " + " ".join(inspect.cleandoc(returns).split())
    return plain(about), _arguments(inspect.cleandoc(sections.get("Args", "")))


def _arguments(section: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", section):
        names, colon, text = entry.partition(":")
        if colon:
            for name in names.split(","):
                found[name.strip()] = plain(" ".join(text.split()))
    return found
