"""Conditions of groups behind a gateway, for consumers that keep their own offsets: paused where they take too long."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest

from tarry.api import filter_pause
from tarry.api.groups import GroupSettings
from tarry.api.operation import data
from tarry.api.quotas import Quotas
from tarry.base.clock import TestClock
from tarry.base.errors import FilterPausedError
from tarry.fronts.gateway.remote.group import RemoteGroup
from tarry.fronts.gateway.remote.link import Link
from tarry.identity.accounts import AccountBook
from tarry.identity.rights import Rights
from tarry.message.filter_sql import SqlFilter
from tarry.message.schema import SCHEMA


def state(condition: str) -> dict[str, Any]:
    settings = data(GroupSettings).encode(GroupSettings(filter=condition))
    flags = dict.fromkeys(("ordered", "waits_for_acks", "deleted", "closed"), False)
    return {"number": 1, "topic": "t", "group": "g", "settings": settings, **flags}


def batch_of(*names: str) -> pa.RecordBatch:
    empty = {field.name: None for field in SCHEMA}
    rows = [{**empty, "topic": "t", "body": b"", "properties": [("n", name)]} for name in names]
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([field.with_nullable(True) for field in SCHEMA]))


def test_a_slow_filter_behind_a_gateway_is_paused_as_the_brokers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks, mask = TestClock(), [], SqlFilter.mask_within

    def noting(wanted: SqlFilter, batch: pa.RecordBatch, cpu_s_max: float) -> Any:
        looks.append(batch.num_rows)
        return mask(wanted, batch, cpu_s_max)

    monkeypatch.setattr(SqlFilter, "mask_within", noting)
    group = RemoteGroup(cast(Link, None), state("sql: n = 'b'"), lambda _: (0, 0), clock, lambda: True)
    assert group.wants(batch_of("a", "b")).tolist() == [False, True]
    assert group.wants(batch_of(*"ab" * 1500)).sum() == 1500
    assert looks == [2, 1024, 1024, 952], "a part at a time"
    looks.clear()
    with monkeypatch.context() as patch:
        patch.setattr(filter_pause, "PART_S", -1.0)
        for name in ("_STEPS_MAX", "_STEPS_MIN"):
            patch.setattr(f"tarry.message.filter_sql.{name}", 1)
        with pytest.raises(FilterPausedError, match="CPU time"):
            group.wants(batch_of("b"))
    assert looks == [1, 1], "once more, for a collection of garbage"
    with pytest.raises(FilterPausedError, match=r"group 'g' of topic 't' is not served until .*, or until its filter"):
        group.wants(batch_of("b"))
    assert looks == [1, 1], "it is not evaluated again"
    clock.advance_ms(filter_pause.PAUSE_MS)
    assert group.wants(batch_of("b")).tolist() == [True]
    with monkeypatch.context() as patch:
        patch.setattr(SqlFilter, "mask_within", lambda *_: (_ for _ in ()).throw(filter_pause.FilterTooSlowError("it")))
        with pytest.raises(FilterPausedError):
            group.wants(batch_of("b"))
    group.update(state("sql: n = 'c'"))
    assert group.wants(batch_of("b", "c")).tolist() == [False, True], "another one was set"


def test_a_reader_pays_for_its_filter_and_the_broker_is_told() -> None:
    told: list[str] = []
    book = AccountBook(TestClock(), told.append)
    account = book.of("billing")
    account.set(Quotas.of({"filter_ms_per_second": 1000}), Rights(()))
    group = RemoteGroup(cast(Link, None), state("sql: n = 'b'"), lambda _: (0, 0), TestClock(), lambda: True)
    assert group.wants(batch_of(*"ab" * 500), account).sum() == 500
    assert told == ["billing"]
    assert account.take_spent()["filter_ms_per_second"] > 0
