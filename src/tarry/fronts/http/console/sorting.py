"""Order and filter of a list, as the page's address has them: ``?sort=-pending&find=orders``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tarry.fronts.http.console.page import link

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list: the address that sorts by it, and ``aria-sort``."""

    address: str
    state: str


@dataclass(frozen=True, slots=True)
class SortChoice:
    """An order that may be chosen: what the address has for it, and what people read."""

    asked: str
    text: str
    is_asked: bool


@dataclass(frozen=True, slots=True)
class Sorting:
    """The order of one list of a page.

    ``columns`` are those that it may be sorted by, with their titles; ``usual`` is the order that is not asked for.
    """

    path: str
    name: str
    """Name in the address."""
    asked: str
    """A column, with "-" before it: the largest first."""
    beside: Mapping[str, str]
    """The other fields of the address."""
    columns: Mapping[str, str]
    usual: str

    @property
    def is_asked(self) -> bool:
        """True if the address has an order of a column that there is."""
        return self.asked.removeprefix("-") in self.columns

    def column(self, name: str) -> Column:
        """Return the state of a column.

        A click turns its order round; it begins with the largest number, the first name or the earliest instant.
        """
        is_down, is_here = self.asked == f"-{name}", self.asked.removeprefix("-") == name
        asked = (name if is_down else f"-{name}") if is_here else (f"-{name}" if _kind(name) == "number" else name)
        state = "none" if not is_here else "descending" if is_down else "ascending"
        return Column(link(self.path, **{**self.beside, self.name: asked}), state)

    @property
    def choices(self) -> list[SortChoice]:
        """All orders, each direction of a column apart, the one that a click begins with first."""
        found = [SortChoice("", self.usual, not self.is_asked)]
        for name, title in self.columns.items():
            kind = _kind(name)
            up, down = _DIRECTIONS[kind]
            orders = [(name, f"{title}, {up}"), (f"-{name}", f"{title}, {down}")]
            if kind == "number":
                orders.reverse()
            found += [SortChoice(asked, text, asked == self.asked) for asked, text in orders]
        return found

    def apply(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in this order; as they are where none is asked for. What is not known comes last."""
        if not self.is_asked:
            return list(rows)
        name, is_down = self.asked.removeprefix("-"), self.asked.startswith("-")
        known = [row for row in rows if row.get(name) is not None]
        unknown = [row for row in rows if row.get(name) is None]
        return sorted(known, key=lambda row: row[name], reverse=is_down) + unknown


_DIRECTIONS = {
    "text": ("A to Z", "Z to A"),
    "time": ("earliest first", "latest first"),
    "number": ("fewest first", "most first"),
}


def _kind(name: str) -> str:
    """Return what a column has, as :data:`_DIRECTIONS` calls it."""
    return "text" if name in ("topic", "group") else "time" if name.endswith("_ms") else "number"


def matching(rows: Sequence[Row], text: str, *names: str) -> list[Row]:
    """Return the rows that have a text in one of their fields, large and small letters alike."""
    wanted = text.casefold()
    return [row for row in rows if any(wanted in str(row[name]).casefold() for name in names)]
