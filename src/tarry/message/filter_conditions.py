"""RocketMQ's SQL92 conditions over properties, translated to an expression that SQLite evaluates.

The language is RocketMQ's: comparisons of properties with constants and with each other, joined by AND, OR, NOT and
parentheses. This file knows the comparisons, because what they mean depends on both sides: a property is a text, and is
a number where it is compared as one. How AND, OR, NOT and NULL work together, and all evaluation, is SQLite's.

What reaches SQLite is built from the pieces here: columns by number, numbers and texts written anew, never a part of
what the user wrote. So there are no subselects, statements, comments or functions to look for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from tarry.base.errors import InvalidArgumentError
from tarry.base.printable import shown

NESTING_MAX = 20
"""Depth of nested parentheses.

SQLite's own limit differs by version, and a stored filter is to be read by the next.
"""
CONDITIONS_MAX = 500
PROPERTIES_MAX = 64
PATTERN_MAX = 256
"""Characters of a LIKE pattern: each % in it may cost as many steps as the text is long."""

GRAMMAR = (
    "comparisons of properties and constants with = <> < <= > >=, BETWEEN … AND …, IN (…), CONTAINS, STARTSWITH, "
    "ENDSWITH, LIKE, IS [NOT] NULL, joined by AND, OR, NOT, ( )"
)

_EQUAL = ("=", "<>", "!=")
_ORDER = ("<", "<=", ">", ">=")
_JOINS = ("AND", "OR", ")")
_BEGINS = ("NOT", "(")
_SEARCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_CONSTANTS = ("TRUE", "FALSE", "NULL")
_KEYWORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "IS", "LIKE", "ESCAPE", *_SEARCHES, *_CONSTANTS})
_INT64 = range(-(2**63), 2**63)
_DIGITS_MAX = 40

# Possessive repeats, so that an open quote is found in one pass.
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*+')
      | (?P<quoted>"(?:[^"]|"")++")
      | (?P<number>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[lL]?(?![A-Za-z0-9_$.])
      | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*+)
      | (?P<sign><>|<=|>=|!=|[=<>(),+-])""",
    re.VERBOSE,
)
_SPACE = re.compile(r"[ \t\r\n\f]*+")


@dataclass(frozen=True, slots=True)
class Translated:
    """A translated condition: ``sql`` over columns ``c0 …``, each with its property's name and SQL type.

    A TEXT column is the property as it is. A NUMERIC one is a number where the text is one, and else the text.
    """

    sql: str
    columns: tuple[tuple[str, str], ...]


def translate(text: str) -> Translated:
    """Translate the condition ``text`` to SQLite's SQL.

    Raises:
        InvalidArgumentError: it is none, or beyond a limit; says at which character, counted from 1, and why.
    """
    return _Translator(list(_tokens(text))).run()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # text, name, number, sign, word (a keyword), end
    value: str
    at: int

    def says(self, *values: str) -> bool:
        """Return whether it is one of these signs or keywords, not a property or text of that name."""
        return self.kind in ("sign", "word") and self.value in values


def _fail(at: int, what: str) -> NoReturn:
    raise InvalidArgumentError(f"at character {at + 1}, {what}")


def _tokens(text: str) -> Iterator[_Token]:
    at = _after_space(text, 0)
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            _fail(at, f"{text[at : at + 20]!r} begins no property, constant or operator")
        kind = str(match.lastgroup)
        value = match[kind]
        if kind == "text":
            value = value[1:-1].replace("''", "'")
        elif kind == "quoted":
            kind, value = "name", value[1:-1].replace('""', '"')
        elif kind == "name" and value.upper() in _KEYWORDS:
            kind, value = "word", value.upper()
        yield _Token(kind, value, at)
        at = _after_space(text, match.end())
    yield _Token("end", "the end", len(text))


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


@dataclass(slots=True)
class _Translator:
    tokens: list[_Token]
    position: int = 0
    columns: dict[tuple[str, str], str] = field(default_factory=dict)

    def run(self) -> Translated:
        """Translate; words that join conditions stay as they are, once their place is checked."""
        sql: list[str] = []
        depth = conditions = 0
        wanted = True  # a condition, or what begins one
        while (token := self._peek()).kind != "end":
            if token.says(*_JOINS) is wanted:
                _fail(token.at, f"{token.value!r} where {'a condition' if wanted else 'AND, OR or )'} is needed")
            if token.says(*_JOINS, *_BEGINS):
                self.position += 1
                sql.append(token.value)
                depth += token.says("(") - token.says(")")
                wanted = not token.says(")")
            else:
                sql.append(f"({self._condition()})")
                conditions += 1
                wanted = False
            if depth < 0 or sql[-2:] == ["NOT", "NOT"]:
                _fail(token.at, "')' without '('" if depth < 0 else "NOT after NOT")
            if depth > NESTING_MAX or conditions > CONDITIONS_MAX:
                limit = f"{CONDITIONS_MAX} conditions, in parentheses nested {NESTING_MAX} deep"
                _fail(token.at, f"it gets too large; allowed: {limit}")
        if wanted or depth:
            _fail(self._peek().at, f"the end where {'a condition' if wanted else repr(')')} is needed")
        return Translated(" ".join(sql), tuple(self.columns))

    # -- conditions --------------------------------------------------------------------------------------------------

    def _condition(self) -> str:
        first, sign = self._operand(), self._peek()
        if sign.says(*_EQUAL, *_ORDER):
            self.position += 1
            return self._compared(first, sign, self._operand())
        if self._take("IS"):
            negated = self._take("NOT")
            self._need("NULL")
            return f"{self._column(first, sign, 'TEXT')} IS {'NOT ' * negated}NULL"
        negated = self._take("NOT")
        word = self._peek()
        kinds = {"BETWEEN": self._between, "IN": self._in, "LIKE": self._like} | dict.fromkeys(_SEARCHES, self._search)
        if word.says(*kinds):
            self.position += 1
            return f"{'NOT ' * negated}({kinds[word.value](first, word)})"
        if first.says(*_CONSTANTS) and not negated:
            return first.value
        hint = "; as a truth value, compare it with TRUE" if first.kind == "name" and not negated else ""
        _fail(word.at, f"{word.value!r} where a comparison of {shown(first.value)} is needed{hint}")

    def _compared(self, first: _Token, sign: _Token, second: _Token) -> str:
        if first.says("NULL") or second.says("NULL"):
            _fail(sign.at, f"{sign.value} NULL is never true; IS NULL or IS NOT NULL is meant")
        kinds = {first.kind, second.kind} - {"name"}
        if sign.value in _ORDER:
            side = self._number
        elif len(kinds) > 1:
            _fail(sign.at, f"{shown(first.value)} and {shown(second.value)} are constants of different types")
        else:
            side = self._truth if "word" in kinds else self._number if "number" in kinds else self._text
        return f"{side(first, sign)} {sign.value} {side(second, sign)}"

    def _between(self, first: _Token, word: _Token) -> str:
        low = self._operand()
        self._need("AND")
        high = self._operand()
        if low.kind == high.kind == "number" and float(low.value) > float(high.value):
            _fail(low.at, f"BETWEEN {low.value} AND {high.value} holds for nothing")
        return f"{self._number(first, word)} BETWEEN {self._number(low, word)} AND {self._number(high, word)}"

    def _in(self, first: _Token, word: _Token) -> str:
        texts, numbers = [], []
        if first.kind != "name":
            _fail(first.at, f"{shown(first.value)} beside IN; allowed: a property")
        self._need("(")
        while True:
            item = self._operand()
            if item.kind == "text":
                texts.append(_quoted(item.value))
            elif item.kind == "number":
                numbers.append(item.value)
            else:
                _fail(item.at, f"{item.value!r} in the list of IN; allowed: texts and numbers")
            if not self._take(","):
                break
        self._need(")")
        # Of both types: a text is looked for as it is, a number however it is written.
        parts = [f"{self._column(first, word, 'TEXT')} IN ({', '.join(texts)})"] if texts else []
        parts += [f"{self._number(first, word)} IN ({', '.join(numbers)})"] if numbers else []
        return " OR ".join(parts)

    def _search(self, first: _Token, word: _Token) -> str:
        column, wanted = self._column(first, word, "TEXT"), self._wanted_text(word)
        if not wanted:
            _fail(word.at, f"{word.value} of an empty text; allowed: at least one character")
        # As bytes: SQLite's functions of texts end at a NUL, which a property may have. Of no bytes, substr gives NULL.
        size, blob = len(wanted.encode()), f"x'{wanted.encode().hex()}'"
        part = f"substr(CAST({column} AS BLOB), {1 if word.value == 'STARTSWITH' else -size}, {size}) = {blob}"
        test = f"instr(CAST({column} AS BLOB), {blob}) > 0" if word.value == "CONTAINS" else part
        return f"CASE WHEN {column} = '' THEN FALSE ELSE {test} END"

    def _like(self, first: _Token, word: _Token) -> str:
        column, pattern = self._column(first, word, "TEXT"), self._wanted_text(word)
        escape = self._wanted_text(word) if self._take("ESCAPE") else None
        if escape is not None and len(escape) != 1:
            _fail(word.at, f"ESCAPE {shown(escape)}; allowed: one character")
        if len(pattern) > PATTERN_MAX:
            _fail(word.at, f"a pattern of {len(pattern)} characters; allowed: {PATTERN_MAX}")
        # GLOB, since SQLite's LIKE ignores case.
        return f"{column} GLOB {_quoted(_glob(pattern, escape, word.at))}"

    # -- the sides of a comparison: each in SQL, as what it is compared as ---------------------------------------------

    def _text(self, token: _Token, word: _Token) -> str:
        return _quoted(token.value) if token.kind == "text" else self._column(token, word, "TEXT")

    def _number(self, token: _Token, word: _Token) -> str:
        if token.kind == "number":
            return token.value
        if token.kind != "name":
            _fail(token.at, f"{shown(token.value)} beside {word.value}; allowed: a property or a number")
        # NULL if it is none: to SQLite any text is greater than any number, and no text is below ''.
        column = self._column(token, word, "NUMERIC")
        return f"(CASE WHEN {column} < '' THEN {column} END)"

    def _truth(self, token: _Token, word: _Token) -> str:
        # As Java's Boolean.valueOf: what is not "true" is false.
        return token.value if token.kind == "word" else f"(lower({self._column(token, word, 'TEXT')}) = 'true')"

    def _column(self, token: _Token, word: _Token, sql_type: str) -> str:
        if token.kind != "name":
            _fail(token.at, f"{shown(token.value)} beside {word.value}; allowed: a property")
        column = self.columns.setdefault((token.value, sql_type), f"c{len(self.columns)}")
        if len({name for name, _ in self.columns}) > PROPERTIES_MAX:
            _fail(token.at, f"there are more than {PROPERTIES_MAX} properties")
        return column

    # -- tokens ------------------------------------------------------------------------------------------------------

    def _operand(self) -> _Token:
        token = self._next()
        sign = token.value if token.says("+", "-") else ""
        if sign:
            token = self._next()
        if token.kind == "number":
            return _Token("number", _number(sign + token.value, token.at), token.at)
        if not sign and (token.kind in ("name", "text") or token.says(*_CONSTANTS)):
            return token
        wanted = f"a number after {sign!r}" if sign else "a property or constant"
        _fail(token.at, f"{shown(token.value)} where {wanted} is needed")

    def _peek(self) -> _Token:
        return self.tokens[self.position]

    def _next(self) -> _Token:
        token = self.tokens[self.position]
        self.position += token.kind != "end"
        return token

    def _take(self, value: str) -> bool:
        is_next = self._peek().says(value)
        self.position += is_next
        return is_next

    def _need(self, value: str) -> None:
        if not self._take(value):
            _fail(self._peek().at, f"{shown(self._peek().value)} where {value} is needed")

    def _wanted_text(self, word: _Token) -> str:
        token = self._next()
        if token.kind != "text":
            _fail(token.at, f"{shown(token.value)} after {word.value}; allowed: a text in single quotes")
        return token.value


# -- constants, in SQLite's way ---------------------------------------------------------------------------------------


def _number(text: str, at: int) -> str:
    digits = text.lstrip("+-")
    whole = digits.isdigit()
    if len(digits) > _DIGITS_MAX or (whole and int(text) not in _INT64) or not math.isfinite(float(text)):
        _fail(at, f"the number {shown(text)}; allowed: 64 bits and {_DIGITS_MAX} characters")
    return str(int(text)) if whole else repr(float(text))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_WILDCARDS = {"%": "*", "_": "?"}


def _glob(pattern: str, escape: str | None, at: int) -> str:
    """GLOB's pattern for LIKE's: other wildcards, and brackets around what is none in LIKE."""
    parts, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if character not in (escape, *_WILDCARDS):
                _fail(at, f"the escape {escape!r} before {character!r}; allowed: before itself, % and _")
        elif character in _WILDCARDS:
            parts.append(_WILDCARDS[character])
            continue
        parts.append(f"[{character}]" if character in "*?[" else character)
    return "".join(parts)
