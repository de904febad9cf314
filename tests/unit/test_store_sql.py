"""The queries of docs/queries.md, as they stand, in engines that read Delta: all give what the rows say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tarry.base.clock import SystemClock
from tarry.message.schema import SCHEMA
from tarry.store import Store, stage
from tarry.store.layout import HOUR_MS

from .test_store_upkeep import gone

DOCS = Path(__file__).parents[2] / "docs" / "queries.md"
ROWS = 600
Rows = list[tuple[Any, ...]]


def documented() -> dict[str, str]:
    """By what each of them asks."""
    found = re.findall(r"^([A-Z][^\n]*:[^\n]*)\n\n```sql\n(.*?)```", DOCS.read_text(), re.M | re.S)
    return {title.partition(":")[0].partition(" (")[0]: query for title, query in found}


QUERIES = documented()
TITLES = ["How much is pending", "The load of each hour to come", "What is pending for a key", "The largest herds"]


def test_each_documented_query_is_known_here() -> None:
    assert list(QUERIES) == TITLES
    assert DOCS.read_text().count("```sql") == len(TITLES)


def fill(root: str) -> pa.Table:
    """Messages of two topics and some keys, most of them pending; a herd; some cancelled. Gives what is pending."""
    store, now_ms = Store.open(root), SystemClock().now_ms()
    rng = np.random.default_rng(3)
    due = now_ms + HOUR_MS + rng.integers(0, 30 * HOUR_MS, ROWS)
    due[:40] = now_ms + 2 * HOUR_MS
    due[40:60] = now_ms - HOUR_MS  # they have fired, and nobody has expired them yet
    seq = np.arange(ROWS)
    columns = {
        "seq": pa.array(seq),
        "topic": pa.array(["orders", "mails"] * (ROWS // 2)),
        "due_ms": pa.array(due),
        "key": pa.array([f"customer-{number % 31}" if number % 3 else None for number in range(ROWS)]),
        "properties": pa.array([[("k", "v")]] * ROWS, SCHEMA.field("properties").type),
        "body": pa.array([b"body"] * ROWS),
        "born_ms": pa.array(np.full(ROWS, now_ms)),
        "kind": pa.array(np.zeros(ROWS, np.int8)),
    }
    rows = pa.table([columns.get(f.name, pa.nulls(ROWS, f.type)) for f in SCHEMA], schema=SCHEMA)
    victims = seq[::7]
    # Two commits: of one, messages that are cancelled by it would not have been written at all.
    store.commit(stage(rows, store.root, "intake-x", now_ms), 0, ROWS)
    cancelled = gone(due[victims], victims, ROWS)
    store.commit(stage(cancelled, store.root, "intake-x", now_ms), ROWS, ROWS + len(victims))
    pending = (due > now_ms) & ~np.isin(seq, victims)
    return rows.filter(pa.array(pending))


def expected(pending: pa.Table) -> dict[str, Rows]:
    """What the queries find: instants as milliseconds."""
    rows = pending.to_pylist()
    hours = Counter(row["due_ms"] // HOUR_MS * HOUR_MS for row in rows)
    herds = Counter((row["topic"], row["due_ms"]) for row in rows)
    largest = sorted(herds.items(), key=lambda each: (-each[1], each[0][1], each[0][0]))[:10]
    of_key = [row for row in rows if (row["topic"], row["key"]) == ("orders", "customer-17")]
    assert len(of_key) > 3
    answers: list[Rows] = [
        [(len(rows),)],
        sorted(hours.items()),
        sorted((row["due_ms"], row["seq"], row["id"], row["tag"]) for row in of_key),
        [(*herd, count) for herd, count in largest],
    ]
    return dict(zip(TITLES, answers, strict=True))


def in_ms(rows: Rows) -> Rows:
    return [tuple(round(v.timestamp() * 1000) if hasattr(v, "timestamp") else v for v in row) for row in rows]


def in_duckdb(root: str, query: str) -> Rows:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("store", DeltaTable(root).to_pyarrow_dataset())
        return list(connection.execute(query).fetchall())


def in_polars(root: str, query: str) -> Rows:
    polars = pytest.importorskip("polars")
    return list(polars.SQLContext(store=polars.scan_delta(root)).execute(query).collect().rows())


def in_trino(root: str, query: str) -> Rows:
    """Read as Trino's dialect, names resolved against the table's columns, and run as what DuckDB calls the same."""
    sqlglot = pytest.importorskip("sqlglot")
    from sqlglot.optimizer.qualify import qualify

    fields = {field.name: "varchar" for field in DeltaTable(root).schema().fields}
    tree = qualify(sqlglot.parse_one(query, read="trino"), schema={"store": fields}, dialect="trino")
    return in_duckdb(root, tree.sql(dialect="duckdb"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Rows]]:
    root = str(tmp_path_factory.mktemp("sql") / "store")
    return root, expected(fill(root))


@pytest.mark.parametrize(
    "engine", [in_duckdb, *(pytest.param(each, marks=pytest.mark.rest) for each in (in_polars, in_trino))]
)
def test_the_documented_queries(filled: tuple[str, dict[str, Rows]], engine: Callable[[str, str], Rows]) -> None:
    root, answers = filled
    for title, query in QUERIES.items():
        assert in_ms(engine(root, query)) == answers[title], title


def test_bounds_of_instants_leave_out_files(filled: tuple[str, dict[str, Rows]]) -> None:
    root, _ = filled
    actions = pa.table(DeltaTable(root).get_add_actions(flatten=True))
    for name in ("min", "max"):
        instants = actions[f"{name}.due"].cast(pa.int64()).to_numpy()
        assert (instants == actions[f"{name}.due_ms"].to_numpy() * 1000).all()
