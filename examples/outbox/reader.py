"""Brings the rows of a PostgreSQL table to Tarry: what your transaction wrote is scheduled or cancelled, and once.

    psql -f outbox.sql
    tarry serve --data data --pipeline off --set dedupe_ms=7d
    python reader.py postgresql://localhost/shop localhost:7611        # as many of them as you like

A row is deleted in the transaction that has it locked, after Tarry has answered. Where the reader is killed in between,
the row comes again, with the same id of its message, so the second one is a duplicate for as long as ``dedupe_ms``
says. Rows of one key are taken one after the other, so that a cancellation never overtakes what it is to cancel.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

import tarry
from tarry.errors import InvalidArgumentError, TarryError

ROWS = 500
"""Rows of one transaction."""
LOOK_S = 5.0
"""How long to wait for a notification before looking all the same."""
AGAIN_S = 1.0
TAKE = """
    SELECT id, action, message, topic, key, body, due FROM outbox AS row
    WHERE refused IS NULL AND (key IS NULL OR NOT EXISTS (
        SELECT FROM outbox AS former WHERE former.topic = row.topic AND former.key = row.key AND former.id < row.id))
    ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
"""
log = logging.getLogger("outbox")


async def pass_on(connection: psycopg.AsyncConnection[Any], client: tarry.AsyncClient, rows: int = ROWS) -> int:
    """Bring up to ``rows`` rows to Tarry in one transaction; return how many there were.

    Raises:
        TarryError: the broker is away, or full. All rows are there still, and may have been accepted.
    """
    async with connection.transaction():
        taken = await (await connection.execute(TAKE, (rows,))).fetchall()
        answers = await asyncio.gather(*(send(client, *row[1:]) for row in taken), return_exceptions=True)
        done = []
        for (id, *_), answer in zip(taken, answers, strict=True):
            if isinstance(answer, InvalidArgumentError):
                # It would be refused again; others must not wait behind it.
                log.error("row %s is refused: %s", id, answer)
                await connection.execute("UPDATE outbox SET refused = %s WHERE id = %s", (str(answer), id))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                done.append(id)
        await connection.execute("DELETE FROM outbox WHERE id = ANY(%s)", (done,))
    return len(taken)


async def send(
    client: tarry.AsyncClient,
    action: str,
    message: UUID,
    topic: str,
    key: str | None,
    body: bytes,
    due: datetime | None,
) -> None:
    """Do what one row says."""
    if action == "cancel":
        assert key is not None
        await client.cancel_key(topic, key)
    else:
        await client.schedule(topic, body, due=due, id=str(message), key=key)


async def read(dsn: str, address: str) -> None:
    """Pass rows on for ever."""
    async with tarry.AsyncClient(address) as client:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
                    await connection.execute("LISTEN outbox")
                    while True:
                        while await pass_on(connection, client):
                            pass
                        async for _ in connection.notifies(timeout=LOOK_S, stop_after=1):
                            pass
            except (TarryError, psycopg.OperationalError) as error:
                log.warning("once more in %g s: %s", AGAIN_S, error)
                await asyncio.sleep(AGAIN_S)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(read(*sys.argv[1:]))
