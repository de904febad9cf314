"""What a group's filter lets through: tag expressions, and RocketMQ's SQL92 against a second evaluator."""

from __future__ import annotations

import gc
import re
import sqlite3
import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tarry.base.errors import InvalidArgumentError
from tarry.message import filter_sql
from tarry.message.filter import TEXT_MAX, as_tags, check_meant, parse_filter
from tarry.message.filter_conditions import CONDITIONS_MAX, NESTING_MAX, PATTERN_MAX, PROPERTIES_MAX
from tarry.message.schema import PROPERTIES, SCHEMA

Properties = Mapping[str, str] | Sequence[tuple[str, str]] | None


def batch_of(properties: Sequence[Properties] = (), tags: Sequence[str | None] = ()) -> pa.RecordBatch:
    rows = max(len(properties), len(tags))
    items = [None if p is None else list(p.items() if isinstance(p, Mapping) else p) for p in properties]
    columns = {
        "tag": pa.array(tags or [None] * rows, pa.string()),
        "properties": pa.array(items or [None] * rows, PROPERTIES),
    }
    return pa.RecordBatch.from_arrays([columns.get(f.name, pa.nulls(rows, f.type)) for f in SCHEMA], schema=SCHEMA)


def matches(text: str, properties: Properties, tag: str | None = None) -> bool:
    found = parse_filter(text).mask(batch_of([properties], [tag]))
    assert found.dtype == np.bool_ and found.shape == (1,)
    return bool(found[0])


# -- what is meant ----------------------------------------------------------------------------------------------------

DOUBTFUL = [
    "A & B",
    "A&B",
    "A | B",
    "A AND B",
    "A or B",
    "A || B And C",
    "A &&& B",
    "A\tOR\tB",
    "A OR",
    "and A",
    "SQL: A",
    "Tags:A",
]


@pytest.mark.parametrize("text", DOUBTFUL)
def test_one_tag_that_looks_like_two_is_refused_of_those_who_mean_two(text: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"is one tag; allowed: 'A \|\| B' for either tag, 'A && B' for both"
    ):
        check_meant(text)
    parse_filter(text)  # one that is stored is read


LACKING = ["A &&", "A ||", "A||B||", "&& A", "|| A", " A && && B ", "A || || B", "A |||| B", "A || && B", "A ||\t"]


@pytest.mark.parametrize("text", LACKING)
def test_an_operator_without_a_tag_on_each_side_is_refused_of_those_who_mean_one(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        check_meant(text)
    assert str(refused.value) == (
        f"filter {text!r}: a tag is needed on each side of || and &&; "
        f"allowed: '*', 'A || B', 'A && B', or 'sql:' and a condition, in up to {TEXT_MAX} characters"
    )
    parse_filter(text)  # one that is stored is read


@pytest.mark.parametrize("text", ["||", "&&", " || && "])
def test_operators_alone_are_refused_of_all(text: str) -> None:
    for refuses in (check_meant, parse_filter):
        with pytest.raises(InvalidArgumentError, match="a tag is needed on each side"):
            refuses(text)


@pytest.mark.parametrize(
    "text", ["", "*", "A", "A || B", "A && B", "A B", "AND", "OR", "Android", "A ANDB", "sql:a = 'x & y' AND b = 'z'"]
)
def test_other_filters_are_taken(text: str) -> None:
    check_meant(text)


@pytest.mark.parametrize("text", [*DOUBTFUL, *map(str.strip, LACKING)])
def test_tags_as_they_are_written(text: str) -> None:
    written = as_tags(f" {text} ")
    assert written == f"tags:{text}"
    check_meant(written)
    assert parse_filter(written).text == written
    tags = [None, "A", "B", text, *(part.strip() for part in text.split("||"))]
    batch = batch_of(tags=tags)
    assert parse_filter(written).mask(batch).tolist() == parse_filter(text).mask(batch).tolist()


def test_a_tag_that_begins_as_the_prefix() -> None:
    assert (as_tags("tags:A"), as_tags("A || B"), as_tags("*")) == ("tags:tags:A", "A || B", "*")
    assert matches("tags:tags:A", None, "tags:A")
    assert parse_filter("tags: *").matches_all
    with pytest.raises(InvalidArgumentError, match="a tag is needed"):
        parse_filter("tags:")


# -- tags -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("*", ["A", "B", "a", " A", "A B", "A||B", "A || B||C", "||", "", None]),
        ("", ["A", "B", "a", " A", "A B", "A||B", "A || B||C", "||", "", None]),
        ("A", ["A", "A||B", "A || B||C"]),
        ("  A\t", ["A", "A||B", "A || B||C"]),
        ("A || B", ["A", "B", "A||B", "A || B||C"]),
        ("A||B||", ["A", "B", "A||B", "A || B||C"]),
        ("A B", ["A B"]),
        ("C", ["A || B||C"]),
        ("A && B", ["A||B", "A || B||C"]),
        ("B&&A&&A", ["A||B", "A || B||C"]),
        ("A && B && C", ["A || B||C"]),
        ("a || B && C", ["a", "A || B||C"]),
        ("A && D", []),
        ("A|B", []),
        ("%", []),
    ],
)
def test_a_tag_expression(text: str, tags: list[str | None]) -> None:
    every = ["A", "B", "a", " A", "A B", "A||B", "A || B||C", "||", "", None]
    found = parse_filter(text).mask(batch_of(tags=every))
    assert [tag for tag, match in zip(every, found, strict=True) if match] == tags


names = st.text("AB* |&é", min_size=1, max_size=3).filter(lambda t: "||" not in t and "&&" not in t)


@given(st.lists(names.filter(lambda t: t.strip(" ") not in ("", "*")), min_size=1), st.lists(st.none() | names))
def test_a_single_tag_matches_as_in_rocketmq(wanted: list[str], tags: list[str | None]) -> None:
    text = "||".join(wanted)
    parts = {part.strip() for part in text.split("||")} - {""}  # as RocketMQ reads it, runs of bars included
    assume(parts and "*" not in parts and "&&" not in text)
    assert parse_filter(text).mask(batch_of(tags=tags)).tolist() == [tag in parts for tag in tags]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("||", "a tag is needed on each side"),
        ("A || &&", "a tag is needed"),
        ("A || *", "'*' stands alone"),
        ("* && A", "'*' stands alone"),
        ("A\0", r"filter 'A\x00'; allowed: '*', 'A || B'"),
        ("A" * (TEXT_MAX + 1), "in up to 16384 characters"),
        ("\ud800", "allowed"),
    ],
)
def test_what_is_no_tag_expression_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        parse_filter(text)
    assert says in str(raised.value) and len(str(raised.value)) < 400


@pytest.mark.parametrize("value", [None, 5, b"A"])
def test_what_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed"):
        parse_filter(value)


@pytest.mark.parametrize("text", ["*", "A", "A || B", "sql: a = 'x'"])
def test_a_filter_knows_its_text_and_whether_it_needs_asking(text: str) -> None:
    found = parse_filter(f"  {text} \n")
    assert str(found) == found.text == text
    assert found.matches_all is (text == "*")
    assert found.mask(batch_of()).tolist() == []
    assert parse_filter("").text == "*"


# -- conditions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "properties", "expected"),
    [
        # the example of the documentation
        ("price > 3 AND region IN ('eu','us') AND (a IS NULL OR NOT b = 'x')", {"price": "3.5", "region": "us"}, True),
        ("price > 3 AND region IN ('eu','us') AND (a IS NULL OR NOT b = 'x')", {"price": "3", "region": "us"}, False),
        ("region = 'eu' AND (a IS NULL OR NOT b = 'x')", {"region": "eu", "a": "1", "b": "x"}, False),
        ("region = 'eu' AND (a IS NULL OR NOT b = 'x')", {"region": "eu", "a": "1", "b": "y"}, True),
        ("region = 'eu' AND (a IS NULL OR NOT b = 'x')", {"region": "eu", "a": "1"}, False),
        # numbers are compared as numbers, however they are written
        ("a > 5", {"a": "10"}, True),
        ("a > 5", {"a": "5.5"}, True),
        ("a >= 5", {"a": "5.0"}, True),
        ("a = 5", {"a": "05"}, True),
        ("a = 5", {"a": " 5 "}, True),
        ("a = 5", {"a": "0.5e1"}, True),
        ("a <> 5", {"a": "6"}, True),
        ("a != 5", {"a": "5"}, False),
        ("a < -3", {"a": "-3.5"}, True),
        ("a = +5", {"a": "5"}, True),
        ("a = 5L", {"a": "5"}, True),
        ("5 < a", {"a": "6"}, True),
        ("a = .5", {"a": "0.5"}, True),
        ("a > 1e3", {"a": "1001"}, True),
        ("a = 9007199254740993", {"a": "9007199254740993"}, True),
        ("a = 9007199254740993", {"a": "9007199254740992"}, False),
        ("a = -9223372036854775808", {"a": "-9223372036854775808"}, True),
        ("a > 9223372036854775807", {"a": "1e999"}, True),
        # a text beside a number is neither above nor below nor equal nor unequal to it
        ("a > 5", {"a": "abc"}, False),
        ("a < 5", {"a": "abc"}, False),
        ("NOT a > 5", {"a": "abc"}, False),
        ("a <> 5", {"a": "abc"}, False),
        ("a > 5", {"a": ""}, False),
        ("a BETWEEN 0 AND 9", {"a": "nan"}, False),
        ("a > 5 OR b = 'x'", {"a": "abc", "b": "x"}, True),
        # texts are compared as they are written
        ("a = '5'", {"a": "5"}, True),
        ("a = '5'", {"a": "05"}, False),
        ("a = '5.0'", {"a": "5"}, False),
        ("a IN ('05', 'x')", {"a": "5"}, False),
        ("a = 'X'", {"a": "x"}, False),
        ("a <> 'x'", {"a": "y"}, True),
        ("a <> 'x'", {}, False),
        ("a = 'it''s'", {"a": "it's"}, True),
        ("a = ''", {"a": ""}, True),
        ("a = 'é😀'", {"a": "é😀"}, True),
        ("a = 'x'", {"a": "x\0y"}, False),
        ("a = b", {"a": "x", "b": "x"}, True),
        ("a = b", {"a": "5", "b": "5.0"}, False),
        ("a < b", {"a": "9", "b": "10"}, True),
        # truth
        ("a = TRUE", {"a": "True"}, True),
        ("a = FALSE", {"a": "no"}, True),
        ("a <> TRUE", {}, False),
        ("TRUE", {}, True),
        ("FALSE OR NULL", {}, False),
        ("NOT NULL", {}, False),
        ("TRUE = TRUE AND 'a' = 'a' AND 1 < 2", None, True),
        # ranges and lists
        ("a BETWEEN 1 AND 10", {"a": "10"}, True),
        ("a BETWEEN b AND 10", {"a": "9", "b": "10"}, False),
        ("5 BETWEEN a AND b", {"a": "1", "b": "10"}, True),
        ("a NOT BETWEEN 1 AND 10", {"a": "11"}, True),
        ("a NOT BETWEEN 1 AND 10", {}, False),
        ("a NOT IN ('x', 'y')", {"a": "z"}, True),
        ("a NOT IN ('x', 'y')", {}, False),
        ("a IN (1, 2, -3)", {"a": "-3.0"}, True),
        ("a IN ('x', 5)", {"a": "05"}, True),
        ("a IN ('x', 5)", {"a": "x"}, True),
        ("a NOT IN ('x', 5)", {"a": "05"}, False),
        # parts of texts
        ("a CONTAINS 'b%'", {"a": "ab%c"}, True),
        ("a CONTAINS 'B'", {"a": "abc"}, False),
        ("a NOT CONTAINS 'x'", {"a": "abc"}, True),
        ("a NOT CONTAINS 'x'", {}, False),
        ("a STARTSWITH 'ab'", {"a": "abc"}, True),
        ("a STARTSWITH '00'", {"a": "007"}, True),
        ("a NOT STARTSWITH 'b'", {"a": "abc"}, True),
        ("a ENDSWITH 'bc'", {"a": "abc"}, True),
        ("a ENDSWITH 'zabc'", {"a": "abc"}, False),
        ("a NOT ENDSWITH 'c'", {"a": "abc"}, False),
        ("a ENDSWITH 'é'", {"a": "caf\0é"}, True),
        ("a STARTSWITH 'é' AND a CONTAINS 'é'", {"a": "é\0"}, True),
        ("a CONTAINS 'b'", {"a": "a\0b"}, True),
        ("NOT (a CONTAINS 'x' OR a STARTSWITH 'x' OR a ENDSWITH 'x')", {"a": ""}, True),
        ("NOT a STARTSWITH 'xyz'", {"a": "xy"}, True),
        ("a LIKE 'a%c'", {"a": "abbc"}, True),
        ("a LIKE 'A%'", {"a": "abc"}, False),
        ("a LIKE 'a_c'", {"a": "aéc"}, True),
        ("a LIKE 'a_c'", {"a": "ac"}, False),
        ("a NOT LIKE '%z%'", {"a": "abc"}, True),
        ("a LIKE '[a]*?'", {"a": "[a]*?"}, True),
        ("a LIKE '[a]*?'", {"a": "aa"}, False),
        ("a LIKE '5!%!!!_%' ESCAPE '!'", {"a": "5%!_x"}, True),
        ("a LIKE '5!%' ESCAPE '!'", {"a": "5x"}, False),
        # names
        ("a = 'x'", {"A": "x"}, False),
        ("A = 'x' AND a = 'y'", {"A": "x", "a": "y"}, True),
        ('"order-id" = 7 AND "say ""hi""" = \'x\'', {"order-id": "7", 'say "hi"': "x"}, True),
        ('"in" = \'x\' AND "é" = \'y\' AND "a" = 1', {"in": "x", "é": "y", "a": "1"}, True),
        ("_a$1 = 'x' AND $ = 'y'", {"_a$1": "x", "$": "y"}, True),
        ("c0 = 'x' AND m = 'y' AND rowid = 'z'", {"c0": "x", "m": "y", "rowid": "z"}, True),
        ("a = 'x'", [("a", "y"), ("a", "x")], True),
        ("a is not null And not (a = 'y' oR a in ('z'))", {"a": "x"}, True),
        # what binds tighter
        ("a = 'x' OR a = 'y' AND b = 'z'", {"a": "x"}, True),
        ("(a = 'x' OR a = 'y') AND b = 'z'", {"a": "x"}, False),
        ("NOT a = 'y' AND b = 'z'", {"a": "x", "b": "z"}, True),
        ("NOT (a IS NULL) AND NOT b IS NOT NULL", {"a": "x"}, True),
    ],
)
def test_a_condition(condition: str, properties: Properties, expected: bool) -> None:
    assert matches(f"sql:{condition}", properties) is expected


def test_tags_is_the_tag() -> None:
    assert matches("sql: TAGS IN ('A', 'B') AND TAGS IS NOT NULL", {"TAGS": "C"}, "A")
    assert not matches("sql: TAGS = 'C'", {"TAGS": "C"}, "A")
    assert not matches("sql: tags = 'A'", {}, "A")
    assert matches("sql: TAGS IS NULL", None)


@pytest.mark.parametrize(
    "condition",
    [
        "a=3 and b<>4 And c>5 AND d<=4",
        "a=3  and    b<>4 And c>5 AND d<=4",
        "(a not in ('6', '4', '5')) or (b in ('3', '4', '5'))",
        "(a between 2 and 10) AND (b not between 6 and 9)",
        "b=TRUE OR a is null OR a=3",
        "a=3 and b contains '5' and e not contains 'xxx'",
    ],
)
def test_what_rocketmq_tests_itself_with_is_read_the_same(condition: str) -> None:
    assert matches(f"sql:{condition}", {"a": "3", "b": "5", "c": "6", "d": "4", "e": "y"})
    assert matches("sql: TAGS is not null and TAGS='''''tag'''''", {}, "''tag''")


def test_rows_stay_in_their_order_also_in_a_slice() -> None:
    rows: list[Properties] = [{"n": str(n)} if n % 3 else None for n in range(1000)]
    whole = parse_filter("sql: n >= 500 OR n IS NULL")
    expected = [n >= 500 or n % 3 == 0 for n in range(1000)]
    assert whole.mask(batch_of(rows)).tolist() == expected
    assert whole.mask(batch_of(rows).slice(400, 250)).tolist() == expected[400:650]
    assert whole.mask(batch_of(rows).slice(400, 0)).tolist() == []


# A second evaluator: the same conditions as functions of a message, three-valued.

Row = dict[str, str]
NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
VALUES = ["5", "5.0", "05", " 5", "-3", "1e1", "7", "0", "abc", "", "x", "x'y", "true", "TRUE", "5x", "é", "%", "a%b"]
OPERATORS = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def number_of(value: str | None) -> float | None:
    return float(value) if value is not None and NUMBER.fullmatch(value) else None


def known(function: Any, *values: Any) -> bool | None:
    return None if any(v is None for v in values) else function(*values)


def negation(value: bool | None) -> bool | None:
    return None if value is None else not value


def both(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def word(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from([text, text.lower(), text.title()])


property_names = st.sampled_from(["a", "A", "b", "c d"])
texts = st.sampled_from(VALUES)
numbers = st.sampled_from(["5", "-3", "0", "4.5", "1e1", "7", "+2"])


def spelt(name: str) -> str:
    return name if name.isalnum() else f'"{name}"'


@st.composite
def leaves(draw: Any) -> tuple[str, Any]:
    name = draw(property_names)
    left = spelt(name)
    match draw(st.integers(0, 8)):
        case 0:
            sign, n = draw(st.sampled_from(list(OPERATORS))), draw(numbers)
            return f"{left} {sign} {n}", lambda r: known(OPERATORS[sign], number_of(r.get(name)), float(n))
        case 1:
            sign, t = draw(st.sampled_from(["=", "<>", "!="])), draw(texts)
            return f"{left}{sign}{quoted(t)}", lambda r: known(OPERATORS[sign], r.get(name), t)
        case 2:
            low, high = sorted((draw(numbers), draw(numbers)), key=float)
            text = f"{left} {draw(word('BETWEEN'))} {low} {draw(word('AND'))} {high}"
            return text, lambda r: known(lambda v: float(low) <= v <= float(high), number_of(r.get(name)))
        case 3:
            some = draw(st.lists(texts, min_size=1, max_size=3))
            text = f"{left} {draw(word('IN'))} ({', '.join(map(quoted, some))})"
            return text, lambda r: known(lambda v: v in some, r.get(name))
        case 4:
            return f"{left} {draw(word('IS'))} {draw(word('NULL'))}", lambda r: name not in r
        case 5:
            part = draw(texts.filter(bool))
            how, test = draw(
                st.sampled_from(
                    [("CONTAINS", str.__contains__), ("STARTSWITH", str.startswith), ("ENDSWITH", str.endswith)]
                )
            )
            return f"{left} {draw(word(how))} {quoted(part)}", lambda r: known(lambda v: test(v, part), r.get(name))
        case 6:
            truth = draw(st.booleans())
            text = f"{left} = {draw(word(str(truth).upper()))}"
            return text, lambda r: known(lambda v: (v.lower() == "true") is truth, r.get(name))
        case 7:
            other, sign = draw(property_names), draw(st.sampled_from(list(OPERATORS)))
            as_ = Row.get if sign in ("=", "<>", "!=") else lambda r, n: number_of(r.get(n))
            return f"{left} {sign} {spelt(other)}", lambda r: known(OPERATORS[sign], as_(r, name), as_(r, other))
        case _:
            value = draw(st.sampled_from([True, False, None]))
            return {True: "TRUE", False: "FALSE", None: "NULL"}[value], lambda r: value


def joined(parts: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[tuple[str, Any]]:
    def conjunction(a: tuple[str, Any], b: tuple[str, Any]) -> tuple[str, Any]:
        return f"({a[0]} AND {b[0]})", lambda r: both(a[1](r), b[1](r))

    def disjunction(a: tuple[str, Any], b: tuple[str, Any]) -> tuple[str, Any]:
        return f"({a[0]} or {b[0]})", lambda r: negation(both(negation(a[1](r)), negation(b[1](r))))

    def denial(a: tuple[str, Any]) -> tuple[str, Any]:
        return f"NOT({a[0]})", lambda r: negation(a[1](r))

    return st.builds(conjunction, parts, parts) | st.builds(disjunction, parts, parts) | st.builds(denial, parts)


conditions = st.recursive(leaves(), joined, max_leaves=8)
rows = st.lists(st.dictionaries(property_names, texts), min_size=1, max_size=20)


@settings(max_examples=examples(400))
@given(conditions, rows)
def test_conditions_are_evaluated_as_by_a_second_evaluator(condition: tuple[str, Any], messages: list[Row]) -> None:
    text, evaluate = condition
    assume(text.count("(") <= NESTING_MAX)
    found = parse_filter(f"sql: {text}").mask(batch_of(messages))
    assert found.tolist() == [evaluate(row) is True for row in messages], text


@given(st.lists(st.sampled_from(["AND", "OR", "NOT", "(", ")", "a = 1", "TRUE"]), min_size=1, max_size=8))
def test_what_may_follow_what_is_as_in_python(words: list[str]) -> None:
    text = " ".join(words)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a call of True
            compile(text.lower().replace("a = 1", "True").replace("true", "True"), "", "eval")
        fine = "NOT NOT" not in text and "TRUE (" not in text and "1 (" not in text and ") (" not in text
        fine = fine and "( )" not in text
    except SyntaxError:
        fine = False
    try:
        parse_filter("sql: " + text)
        accepted = True
    except InvalidArgumentError:
        accepted = False
    assert accepted is fine


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("", "at character 1, the end where a condition is needed"),
        ("a", "'the end' where a comparison of 'a' is needed; as a truth value, compare it with TRUE"),
        ("a AND b = 1", "at character 3, 'AND' where a comparison of 'a'"),
        ("'x'", "a comparison of 'x' is needed"),
        ("1", "a comparison of '1' is needed"),
        ("a =", "'the end' where a property or constant is needed"),
        ("a = 1 b = 2", "at character 7, 'b' where AND, OR or ) is needed"),
        ("a = 1 AND", "the end where a condition is needed"),
        ("AND a = 1", "at character 1, 'AND' where a condition is needed"),
        ("(a = 1", "the end where ')' is needed"),
        ("a = 1)", "at character 6, ')' without '('"),
        ("TRUE) OR (TRUE", "at character 5, ')' without '('"),
        ("1) OR (1", "at character 2, ')' where a comparison of '1' is needed"),
        ("()", "at character 2, ')' where a condition is needed"),
        ("NOT NOT a = 1", "at character 5, NOT after NOT"),
        ("a = NULL", "at character 3, = NULL is never true; IS NULL or IS NOT NULL is meant"),
        ("a < 'x'", "at character 5, 'x' beside <; allowed: a property or a number"),
        ("a < TRUE", "'TRUE' beside <"),
        ("'x' = 1", "'x' and '1' are constants of different types"),
        ("a BETWEEN 5 AND 1", "BETWEEN 5 AND 1 holds for nothing"),
        ("a BETWEEN 'x' AND 'y'", "'x' beside BETWEEN"),
        ("a BETWEEN 1 OR 2", "'OR' where AND is needed"),
        ("'x' IN ('x')", "'x' beside IN; allowed: a property"),
        ("a IN ()", "')' where a property or constant is needed"),
        ("a IN (NULL)", "'NULL' in the list of IN; allowed: texts and numbers"),
        ("a IN (b)", "'b' in the list of IN"),
        ("a IN ('x'", "'the end' where ) is needed"),
        ("a CONTAINS b", "'b' after CONTAINS; allowed: a text in single quotes"),
        ("a CONTAINS ''", "CONTAINS of an empty text"),
        ("a LIKE 'x!' ESCAPE '!'", "the escape '!' before ''"),
        ("a LIKE 'x' ESCAPE 'no'", "ESCAPE 'no'; allowed: one character"),
        (f"a LIKE '{'%' * 257}'", f"a pattern of 257 characters; allowed: {PATTERN_MAX}"),
        ("a IS 5", "'5' where NULL is needed"),
        ("5 IS NULL", "'5' beside IS; allowed: a property"),
        ("a = 'x", 'at character 5, "\'x" begins no property'),
        ("\"\" = 'x'", "begins no property"),
        ("a = 5x", "'5x' begins no property, constant or operator"),
        ("a = 5.5.5", "'5.5.5' begins"),
        ("a = 99999999999999999999", "the number '99999999999999999999'; allowed: 64 bits"),
        ("a = " + "9" * 5000, "allowed: 64 bits"),
        ("a = 1e999", "the number '1e999'"),
        ("a == 1", "'=' where a property or constant is needed"),
        ("a = --5", "'-' where a number after '-' is needed"),
        # none of the below is in the language; SQLite would know most of it
        ("a = 1; DROP TABLE m", "'; DROP TABLE m' begins no property"),
        ("a = 1 -- comment", "at character 7, '-' where AND"),
        ("a = 1 /* comment */", "'/* comment */' begins"),
        ("a = (SELECT 1)", "'(' where a property or constant is needed"),
        ("a IN (SELECT name FROM sqlite_master)", "'SELECT' in the list of IN"),
        ("EXISTS (SELECT 1)", "'(' where a comparison of 'EXISTS' is needed"),
        ("load_extension('x') = 1", "'(' where a comparison of 'load_extension'"),
        ("a = 1 UNION SELECT 1", "'UNION' where AND"),
        ("randomblob(1000000000) = a", "'(' where a comparison of 'randomblob'"),
        ("a + 1 > 2", "'+' where a comparison of 'a'"),
        ("a || a = 1", "'|| a = 1' begins"),
        ("a GLOB 'x'", "'GLOB' where a comparison of 'a'"),
        ("a MATCH 'x'", "'MATCH' where a comparison of 'a'"),
        ("CASE WHEN a = 1 THEN 1 END", "'WHEN' where a comparison of 'CASE'"),
        ("?1 = a", "'?1 = a' begins"),
        ("[a] = 1", "'[a] = 1' begins"),
        ("`a` = 1", "begins"),
        ("x'41' = a", "where a comparison of 'x' is needed"),
        ("a = 'x' COLLATE NOCASE", "'COLLATE' where AND"),
    ],
)
def test_what_is_refused_and_what_the_refusal_says(condition: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        parse_filter(f"sql:{condition}")
    assert says in str(raised.value)
    assert "; allowed: comparisons of properties" in str(raised.value) and len(str(raised.value)) < 700


@pytest.mark.parametrize(
    "text",
    [
        "(" * 8000 + "a = 1" + ")" * 8000,
        "NOT (" * 2000 + "a = 1" + ")" * 2000,
        "NOT " * 4000 + "a = 1",
        "(" * 10_000 + "a = 1" + ")" * 10_000,
        "'" * 1_000_000,
        "'" * 16_001,
        "'" + "''" * 8000,
        '"' * 16_001,
        "a = '" + "x" * 1_000_000 + "'",
        " OR ".join(["a = 1"] * (CONDITIONS_MAX + 1)),
        " OR ".join(f"a{n} = 1" for n in range(PROPERTIES_MAX + 1)),
        "(" * (NESTING_MAX + 1) + "a = 1" + ")" * (NESTING_MAX + 1),
        " " * 16_000,
        "1e" + "9" * 15_000 + " = a",
    ],
    ids=lambda text: f"{text[:12]}…{len(text)}",
)
@pytest.mark.timeout(60)  # else it would take hours
def test_what_is_too_large_is_refused_at_once(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        parse_filter("sql: " + text)
    assert len(str(raised.value)) < 700


def test_the_largest_allowed_are_taken() -> None:
    nested = "NOT (" * NESTING_MAX + "a = 1 AND b LIKE '%'" + ")" * NESTING_MAX
    assert matches(f"sql: {nested}", {"a": "1", "b": "x"})
    many = " OR ".join(f"a{n % PROPERTIES_MAX} = {n}" for n in range(CONDITIONS_MAX))
    assert matches(f"sql: {many}", {"a51": "499"})
    listed = ",".join(f"'{n}'" for n in range(2400))
    assert matches(f"sql: a IN ({listed})", {"a": "2399"})
    longest = f"sql: a = '{'x' * (TEXT_MAX - 11)}'"
    assert len(longest) == TEXT_MAX
    assert matches(longest, {"a": "x" * (TEXT_MAX - 11)})


# -- the machine ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT name FROM sqlite_master",
        "ATTACH ':memory:' AS other",
        "PRAGMA user_version",
        "CREATE TABLE t (a)",
        "DROP TABLE m",
        "DELETE FROM m",
        "UPDATE m SET c0 = 1",
        "INSERT INTO sqlite_master VALUES (1, 1, 1, 1, 1)",
        "SELECT randomblob(10)",
        "SELECT load_extension('x')",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
        "VACUUM",
    ],
)
def test_the_connection_itself_does_nothing_but_evaluate(statement: str) -> None:
    parsed = parse_filter("sql: a = 'x'")
    with pytest.raises(sqlite3.Error, match=r"not authorized|prohibited|denied"):
        _connection_of(parsed).execute(statement)


def test_a_batch_leaves_nothing_behind() -> None:
    parsed = parse_filter("sql: a = 'x'")
    for _ in range(3):
        assert parsed.mask(batch_of([{"a": "x"}, {"a": "y"}])).tolist() == [True, False]
        assert _connection_of(parsed).execute("SELECT c0 FROM m").fetchall() == []


def test_an_evaluation_that_takes_too_long_is_ended_and_the_next_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = parse_filter("sql: " + " OR ".join(["a CONTAINS 'y'"] * 400))
    rows = batch_of([{"a": "x" * 1000}] * 20_000)  # some 8 GB to look through
    monkeypatch.setattr(filter_sql, "EVALUATION_S_MAX", 0.05)
    with pytest.raises(InvalidArgumentError, match=r"on 20000 messages: not done after 0\.05 s"):
        parsed.mask(rows)
    monkeypatch.undo()
    assert parsed.mask(batch_of([{"a": "x"}, {"a": "y"}])).tolist() == [False, True]


@pytest.mark.timeout(60)  # else it would take hours
def test_a_pattern_of_many_wildcards_is_no_trap() -> None:
    parsed = parse_filter(f"sql: a LIKE '{'%a' * 100}%b'")
    assert not parsed.mask(batch_of([{"a": "a" * 60_000}])).any()


def test_threads_may_share_a_filter() -> None:
    parsed = parse_filter("sql: n BETWEEN 100 AND 199 OR TAGS = 'A'")
    wrong: list[object] = []

    def ask(start: int) -> None:
        batch = batch_of([{"n": str(n)} for n in range(start, start + 300)])
        expected = [100 <= n < 200 for n in range(start, start + 300)]
        try:
            wrong.extend(start for _ in range(50) if parsed.mask(batch).tolist() != expected)
        except Exception as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(0, 240, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_filter_that_is_let_go_closes_its_connection() -> None:
    parsed = parse_filter("sql: a = 'x'")
    connection, reference = _connection_of(parsed), weakref.ref(parsed)
    del parsed
    gc.collect()
    assert reference() is None
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def _connection_of(parsed: object) -> sqlite3.Connection:
    return parsed._connection  # type: ignore[attr-defined]  # noqa: SLF001 - only SQLite shows its limits and its rows
