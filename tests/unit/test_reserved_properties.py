"""Tarry's own properties as columns, whatever part of a larger array they come from; and dead letters made of them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tarry.groups import dead_letter_rows as dead
from tarry.message.dead_topics import DEAD_LETTER_GROUP
from tarry.message.properties import has_none
from tarry.message.reserved import rewritten, texts_of, values_of
from tarry.message.schema import PROPERTIES, SCHEMA, UNNUMBERED

NAMES = st.sampled_from(["a", "tarry.only", "tarry.order", "tarry.dead.seq", "tarry.dead.x", "", "ü"])
ROW = st.one_of(st.none(), st.dictionaries(NAMES, st.text(max_size=3), max_size=4))
Rows = list[dict[str, str] | None]


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.Array, Rows]:
    """A column of properties that is a slice of another, and its rows."""
    rows: Rows = draw(st.lists(ROW, min_size=1, max_size=8))
    start = draw(st.integers(0, len(rows) - 1))
    end = draw(st.integers(start + 1, len(rows)))
    whole = pa.array([None if r is None else list(r.items()) for r in rows], PROPERTIES)
    return whole.slice(start, end - start), rows[start:end]


@given(columns(), NAMES)
def test_a_property_is_found_where_it_is(given: tuple[pa.Array, Rows], name: str) -> None:
    column, rows = given
    expected = [None if r is None else r.get(name) for r in rows]
    assert texts_of(column, name) == expected
    found = values_of(column, name)
    where = [k for k, text in enumerate(expected) if text is not None]
    assert (found is None) == (not where)
    if found is not None:
        assert found[0].tolist() == where
        assert found[1].to_pylist() == [expected[k] for k in where]


@given(columns())
def test_properties_are_taken_out_and_added(given: tuple[pa.Array, Rows]) -> None:
    column, rows = given
    each = pa.array([f"{k}" for k in range(len(rows))])
    after = rewritten(column, without=r"^tarry\.(dead\..*|only)$", added={"one": "x", "each": each})
    assert after.type == PROPERTIES
    kept = [{n: t for n, t in (r or {}).items() if not re.match(r"tarry\.(dead\.|only$)", n)} for r in rows]
    assert [dict(r) for r in after.to_pylist()] == [{**r, "one": "x", "each": f"{k}"} for k, r in enumerate(kept)]
    after.validate(full=True)


def message(k: int, **fields: Any) -> dict[str, Any]:
    row = {f.name: None for f in SCHEMA} | {"seq": k, "topic": "a", "due_ms": 100 + k, "body": b"b", "kind": 0}
    return {**row, "born_ms": 7, "id": str(k), **fields}


def test_a_dead_letter_says_why_and_its_successor_does_not() -> None:
    rows = [message(k, expire_ms=500, tries=k or None, properties=[("p", str(k))] if k else None) for k in range(4)]
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA).slice(1, 2)
    attempts = np.array([3, 0], np.int32)
    copies = dead.dead_letter_copies(batch, topic="a", group="g", cause=dead.EXPIRED, attempts=attempts, now_ms=999)
    assert copies.schema == UNNUMBERED
    copies.validate(full=True)
    first, second = copies.to_pylist()
    assert (first["topic"], first["due_ms"], first["expire_ms"], first["tries"]) == ("%DLQ%a/g", 999, None, 1)
    assert dict(second["properties"])["tarry.dead.attempts"] == "0"
    assert dict(second["properties"])["p"] == "2"
    stored = pa.RecordBatch.from_arrays([pa.array([8, 9]), *copies.columns], schema=SCHEMA)
    assert dead.attempts_of(stored).to_pylist() == [3, 0]
    again = dead.renewed(stored, 1500)
    assert dict(again["properties"][0].as_py()) == {**dict(first["properties"]), "tarry.only": DEAD_LETTER_GROUP}
    stored = pa.RecordBatch.from_arrays([pa.array([8, 9]), *again.columns], schema=SCHEMA)
    back = dead.respawned(stored, topic="a", group="g", due_ms=np.array([2000, 2001]))
    assert [dict(p) for p in back["properties"].to_pylist()] == [
        {"p": "1", "tarry.only": "g", "tarry.first": f"{rows[1]['seq']}:{rows[1]['due_ms']}"},
        {"p": "2", "tarry.only": "g", "tarry.first": f"{rows[2]['seq']}:{rows[2]['due_ms']}"},
    ]
    assert back["due_ms"].to_pylist() == [2000, 2001]


def test_what_a_dead_letter_says_is_not_trusted() -> None:
    rows = [message(0, properties=[("tarry.dead.attempts", "many")]), message(1, properties=[])]
    assert dead.attempts_of(pa.RecordBatch.from_pylist(rows, SCHEMA)).to_pylist() == [0, 0]


def test_which_columns_have_none_of_tarrys_own() -> None:
    own, user = [("x", "1"), ("tarry.late", "dead")], [("x", "1"), ("TARRY.late", "dead")]
    column = pa.array([user, None, own, [], user], PROPERTIES)
    assert has_none(column[:2])
    assert not has_none(column)
    assert not has_none(column[2:])
    assert has_none(column[3:])
    assert has_none(pa.nulls(3, PROPERTIES))
    assert has_none(column[:0])
    many = pa.array([[(f"x{i}", "1") for i in range(50)], [("y", "1")] * 50], PROPERTIES)
    assert has_none(many)
    assert not has_none(pa.concat_arrays([many, column]))
