"""The outbox of ``docs/outbox.md`` with a real PostgreSQL: nothing is lost or doubled, whenever a reader is killed."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tarry.client import AsyncClient, Client
from tests.contract.conftest import Served
from tests.modules import module_at
from tests.outbox.server import FOUND, WHY_NOT, Postgres
from tests.snippets import snippets
from tests.waiting import wait_until

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
pytestmark = [pytest.mark.rest, pytest.mark.skipif(not FOUND, reason=WHY_NOT)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "outbox"
ROWS, KILLS = 450, 3


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(prefix="tarry-outbox-") as directory:
        Path(directory).chmod(0o755)  # the server runs as another user
        server = Postgres(Path(directory) / "postgres")
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Any]:
    """A connection, with an empty table."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute((EXAMPLE / "outbox.sql").read_text())
        connection.execute("TRUNCATE outbox")
        yield connection


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    place = Served(tmp_path / "data", lease_ms=60_000)
    yield place
    place.stop()


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    return module_at(EXAMPLE / "reader.py", "outbox_reader")


def passing(reader: ModuleType, postgres: Postgres, served: Served, rows: int = 500) -> int:
    async def once() -> int:
        async with (
            AsyncClient(served.address) as client,
            await psycopg.AsyncConnection.connect(postgres.dsn, autocommit=True) as connection,
        ):
            found: int = await reader.pass_on(connection, client, rows)
            return found

    return asyncio.run(once())


def left(database: Any) -> int:
    return int(database.execute("SELECT count(*) FROM outbox").fetchone()[0])


def received(client: Client, topic: str, count: int) -> list[str]:
    """``count`` messages, and what else was due before one that is sent afterwards."""
    client.schedule(topic, b"last")
    found: list[str] = []
    while not found or found[-1] != "last":
        for message in client.receive(topic, group="g", max_messages=1000, wait=30):
            found.append(message.body.decode())
            message.ack()
    assert len(found) == count + 1, len(found)
    return found[:-1]


def test_the_rows_of_the_page(reader: ModuleType, postgres: Postgres, served: Served, database: Any) -> None:
    [snippet] = [each for each in snippets("sql") if each.page == "docs/outbox.md"]
    written, _, cancelled = snippet.code.partition("-- Paid")
    database.execute("CREATE TABLE IF NOT EXISTS orders (number int PRIMARY KEY, state text)")
    for statement in written.split(";"):
        database.execute(statement)
    [(message,)] = database.execute("SELECT message FROM outbox").fetchall()
    assert passing(reader, postgres, served) == 1
    with Client(served.address) as client:
        receipt = client.find_key("reminders", "order-7")
        assert receipt is not None
        assert receipt.id == str(message)
        database.execute("--" + cancelled)
        assert passing(reader, postgres, served) == 1
        assert client.find_key("reminders", "order-7") is None
        assert left(database) == 0


def test_the_commands_of_the_page(postgres: Postgres, tmp_path: Path) -> None:
    """In a shell, in the example's directory; the database and the port are the test's."""
    serve, setup = [each for each in snippets("sh") if each.page == "docs/outbox.md"]
    table, run = setup.code.splitlines()
    [options] = serve.commands("tarry")
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
    postgres.run_shell(table, EXAMPLE)
    dedupe_ms = options[options.index("--set") + 1].removeprefix("dedupe_ms=")
    served = Served(tmp_path / "data", dedupe_ms=dedupe_ms)
    command = run.replace("localhost/shop", f"tarry@127.0.0.1:{postgres.port}/shop").replace(
        "localhost:7611", served.address
    )
    program = subprocess.Popen([sys.executable, *command.split()[1:]], cwd=EXAMPLE)
    try:
        with psycopg.connect(postgres.dsn.replace("/postgres", "/shop"), autocommit=True) as shop:
            shop.execute("INSERT INTO outbox (topic, body) VALUES ('t', 'x')")
            wait_until(lambda: left(shop) == 0)
        with Client(served.address) as client:
            assert received(client, "t", 1) == ["x"]
    finally:
        kill(program)
        served.stop()


def test_what_was_rolled_back_is_not_scheduled(
    reader: ModuleType, postgres: Postgres, served: Served, database: Any
) -> None:
    with pytest.raises(ZeroDivisionError), database.transaction():
        database.execute("INSERT INTO outbox (topic, body) VALUES ('t', 'x')")
        raise ZeroDivisionError
    assert passing(reader, postgres, served) == 0


def test_a_commit_that_failed_after_the_answer_doubles_nothing(
    reader: ModuleType, postgres: Postgres, served: Served, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("INSERT INTO outbox (topic, body) SELECT 't', n::text::bytea FROM generate_series(1, 50) AS n")
    send = reader.send

    async def send_and_fail(*row: Any) -> None:
        await send(*row)
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(reader, "send", send_and_fail)
        with pytest.raises(ZeroDivisionError):
            passing(reader, postgres, served)
    assert left(database) == 50
    assert passing(reader, postgres, served) == 50
    assert left(database) == 0
    with Client(served.address) as client:
        assert sorted(map(int, received(client, "t", 50))) == list(range(1, 51))


def test_a_cancellation_waits_for_the_row_before_it(
    reader: ModuleType, postgres: Postgres, served: Served, database: Any
) -> None:
    database.execute("INSERT INTO outbox (topic, key, due) VALUES ('t', 'k', now() + interval '1 hour')")
    database.execute("INSERT INTO outbox (action, topic, key) VALUES ('cancel', 't', 'k')")
    with psycopg.connect(postgres.dsn) as other:
        other.execute("SELECT FROM outbox WHERE action = 'schedule' FOR UPDATE")
        assert passing(reader, postgres, served) == 0, "another reader has the row"
    assert [passing(reader, postgres, served) for _ in range(3)] == [1, 1, 0]
    with Client(served.address) as client:
        assert client.find_key("t", "k") is None


def test_a_refused_row_keeps_its_reason_and_others_go_on(
    reader: ModuleType, postgres: Postgres, served: Served, database: Any
) -> None:
    database.execute("INSERT INTO outbox (topic, body) VALUES ('no topic', 'x'), ('t', 'y')")
    assert passing(reader, postgres, served) == 2
    [(topic, reason)] = database.execute("SELECT topic, refused FROM outbox").fetchall()
    assert topic == "no topic"
    assert "allowed" in reason
    assert passing(reader, postgres, served) == 0


@pytest.mark.parametrize("due", ["infinity", "-infinity", "12000-01-01Z"])
def test_a_time_that_python_cannot_read_is_refused_by_the_table(database: Any, due: str) -> None:
    """The reader would fail at it for ever, and all rows behind it would wait."""
    with pytest.raises(psycopg.errors.CheckViolation):
        database.execute("INSERT INTO outbox (topic, due) VALUES ('t', %s)", (due,))


def test_a_time_beyond_what_tarry_takes_is_refused_with_the_reason(
    reader: ModuleType, postgres: Postgres, served: Served, database: Any
) -> None:
    database.execute("INSERT INTO outbox (topic, due) VALUES ('t', '9998-12-31T00:00:00Z')")
    assert passing(reader, postgres, served) == 1
    [(reason,)] = database.execute("SELECT refused FROM outbox").fetchall()
    assert "delay_ms_max" in reason


def test_rows_wait_while_the_broker_is_away(
    reader: ModuleType, postgres: Postgres, served: Served, database: Any
) -> None:
    database.execute("INSERT INTO outbox (topic, body) VALUES ('t', 'x')")
    served.stop()
    program = started(postgres, served)
    try:
        served.start()
        wait_until(lambda: left(database) == 0)
    finally:
        kill(program)
    with Client(served.address) as client:
        assert received(client, "t", 1) == ["x"]


def started(postgres: Postgres, served: Served) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, EXAMPLE / "reader.py", postgres.dsn, served.address], stderr=subprocess.DEVNULL
    )


def kill(program: subprocess.Popen[bytes]) -> None:
    program.send_signal(signal.SIGKILL)
    program.wait()


def test_readers_that_are_killed_lose_and_double_nothing(postgres: Postgres, served: Served, database: Any) -> None:
    """Two readers, one of them killed again and again; every third row has a key, and half of these are cancelled."""
    rng = random.Random(7)
    readers = [started(postgres, served) for _ in range(2)]
    try:
        for i in range(KILLS):
            # Commits of one row and of many, so that a kill comes at another moment of a reader's transaction.
            for n in range(i * ROWS // KILLS, (i + 1) * ROWS // KILLS):
                insert = "INSERT INTO outbox (topic, body, key, due) VALUES ('t', %s, %s, %s)"
                with database.transaction():
                    if n % 3:
                        database.execute(insert, (str(n).encode(), None, None))
                    else:
                        database.execute(insert, (str(n).encode(), f"k{n}", "2055-01-01T00:00:00Z"))
                        if n % 2:
                            database.execute(
                                "INSERT INTO outbox (action, topic, key) VALUES ('cancel', 't', %s)", (f"k{n}",)
                            )
                if n % (ROWS // KILLS) == rng.randrange(ROWS // KILLS):
                    break_one(readers, postgres, served)
            break_one(readers, postgres, served)
        wait_until(lambda: left(database) == 0)
    finally:
        for program in readers:
            kill(program)
    with Client(served.address) as client:
        at_once = [n for n in range(ROWS) if n % 3]
        assert sorted(map(int, received(client, "t", len(at_once)))) == at_once
        kept = {f"k{n}" for n in range(0, ROWS, 3) if n % 2 == 0}
        assert pending_keys(client) == sorted(kept)


def pending_keys(client: Client) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = client.list_pending(topic="t", limit=1000, cursor=cursor)
        found += page.rows.column("key").to_pylist()
        if (cursor := page.cursor) is None:
            return sorted(found)


def break_one(readers: list[subprocess.Popen[bytes]], postgres: Postgres, served: Served) -> None:
    kill(readers.pop(0))
    readers.append(started(postgres, served))
