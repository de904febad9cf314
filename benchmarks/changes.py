"""What changes messages, and costs: keys, ids, cancelling, series, and acknowledging in batches."""

from __future__ import annotations

import random
import time

import numpy as np
import pyarrow as pa

from benchmarks.harness import Result, benchmark, messages, now_ms, percentiles, server
from benchmarks.pipeline import wait_for_status
from tarry import Client, Outcome

DAY_MS = 86_400_000


def _named(batch: pa.RecordBatch, column: str, first: int) -> pa.RecordBatch:
    return batch.append_column(column, pa.array([f"order-{first + i}" for i in range(batch.num_rows)]))


@benchmark
def keys() -> list[Result]:
    """Batches of 1,000 keyed messages through Flight: all new, then all replacing; and messages with an id."""
    rows, each = 300_000, 1000
    with server() as broker, Client(broker.address) as client:
        parts = [messages(each, now_ms() + DAY_MS + i, seed=i) for i in range(0, rows, each)]
        rates = []
        for column in ("key", "key", "id"):
            table = pa.Table.from_batches([_named(p, column, i * each) for i, p in enumerate(parts)])
            start = time.perf_counter()
            client.schedule_batch(table, chunk_rows=each)
            rates.append(rows / (time.perf_counter() - start))
        pending = sum(t.pending for t in client.pending())
    return [
        Result("keyed schedules, new keys", rates[0], "msg/s", "≥ 50000"),
        Result("keyed schedules, each replacing one", rates[1], "msg/s", "≥ 50000"),
        Result("schedules with an id", rates[2], "msg/s"),
        Result("keys: pending beside one for each key and id", pending - 2 * rows, "messages", "≤ 0"),
    ]


@benchmark
def cancel() -> list[Result]:
    """Five million pending in the store; handles drawn at random, cancelled one by one and in batches of 10,000."""
    rows, each, batch, single = 5_000_000, 5000, 50_000, 1000
    rng, draw = np.random.default_rng(7), random.Random(7)
    handles: list[str] = []
    with (
        server(pipeline="on", spark_master="local[2]", schedule_interval_ms=1000) as broker,
        Client(broker.address, timeout=120) as client,
    ):
        for i in range(0, rows, each):
            due = now_ms() + 3_600_000 + rng.integers(0, 30 * DAY_MS, each)
            for accepted in client.schedule_batch(messages(each, due, seed=i)):
                handles += draw.sample(accepted.handles(), (batch + single) * each // rows)
        draw.shuffle(handles)
        wait_for_status(client, "the commit", lambda s: s["store"]["committed_seq"] == rows)
        time.sleep(5)
        took = []
        for handle in handles[:single]:
            start = time.perf_counter()
            assert client.cancel(handle) is Outcome.DONE
            took.append(time.perf_counter() - start)
        start = time.perf_counter()
        done = 0
        for i in range(single, len(handles), 10_000):
            done += client.cancel_many(handles[i : i + 10_000]).count(Outcome.DONE)
        rate = done / (time.perf_counter() - start)
        near = [h for a in client.schedule_batch(messages(200_000, now_ms() + DAY_MS)) for h in a.handles()]
        start = time.perf_counter()
        for i in range(0, len(near), 10_000):
            done += client.cancel_many(near[i : i + 10_000]).count(Outcome.DONE)
        fresh = len(near) / (time.perf_counter() - start)
        pending = sum(t.pending for t in client.pending())
    p50, p99 = percentiles(np.array(took) * 1000, 50, 99)
    return [
        Result("cancel one of 5 M in the store, p50", p50, "ms"),
        Result("cancel one of 5 M in the store, p99", p99, "ms", "≤ 20"),
        Result("cancel in batches, of 5 M in the store", rate, "msg/s", "≥ 10000"),
        Result("cancel in batches, just accepted", fresh, "msg/s", "≥ 10000"),
        Result(
            "cancel: pending beside what is left", abs(pending + done + single - rows - len(near)), "messages", "≤ 0"
        ),
    ]


@benchmark
def series() -> list[Result]:
    """Resident memory with a million series pending, against a million messages that do not repeat."""
    rows, each, found = 1_000_000, 5000, []
    for repeat in (None, '{"every":"1h"}', '{"cron":"0 9 * * *","zone":"Europe/Berlin"}'):
        with server() as broker, Client(broker.address) as client:
            client.schedule_batch(messages(each, now_ms() + DAY_MS))
            for i in range(0, rows, each):
                part = messages(each, now_ms() + DAY_MS + i, seed=i)
                client.schedule_batch(
                    part if repeat is None else part.append_column("repeat", pa.array([repeat] * each))
                )
            time.sleep(5)
            found.append(broker.rss_mb)
    return [
        Result("RSS, 1 M that do not repeat", found[0], "MB"),
        Result("RSS, 1 M series of an interval, above that", found[1] - found[0], "MB", "≤ 16"),
        Result("RSS, 1 M series of a cron rule, above that", found[2] - found[0], "MB", "≤ 16"),
    ]


@benchmark
def occurrences() -> list[Result]:
    """10,000 series due in one instant, again and again: when the last occurrence of an instant is handed out."""
    rows, late = 10_000, []
    with (
        server() as broker,
        Client(broker.address) as client,
        client.consume("bench", group="g", prefetch=50_000, timeout=8) as consumer,
    ):
        due = now_ms() + 3000
        part = messages(rows, due).append_column("repeat", pa.array(['{"every":"2s","times":5}'] * rows))
        client.schedule_batch(part)
        for batch in consumer.batches():
            late.append(time.time() * 1000 - batch.data["due_ms"].to_numpy())
            batch.ack()
    every = np.concatenate(late)
    return [
        Result("10,000 series in one instant: the last occurrence", float(every.max()) / 1000, "s", "≤ 1"),
        Result(
            "series: occurrences lost, early or twice", abs(len(every) - 5 * rows) + int((every < 0).sum()), "", "≤ 0"
        ),
    ]


@benchmark
def drain() -> list[Result]:
    """A consumer that acknowledges batches of columns drains what is ready."""
    rows = 2_000_000
    with server() as broker, Client(broker.address) as client:
        for i in range(0, rows, 5000):
            client.schedule_batch(messages(5000, now_ms(), seed=i))
        wait_for_status(client, "the dispatch", lambda s: s["fired"] == rows)
        seen = 0
        start = time.perf_counter()
        with client.consume("bench", group="g", prefetch=50_000) as consumer:
            for batch in consumer.batches():
                seen += len(batch)
                batch.ack()
                if seen == rows:
                    break
            consumer.flush()
        rate = rows / (time.perf_counter() - start)
    return [Result("a consumer acknowledging in batches", rate, "msg/s", "≥ 100000")]
