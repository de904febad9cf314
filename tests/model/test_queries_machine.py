"""The machine of ``test_changes_machine``, queried: lists, next due times and forecasts agree with the model after
whatever happened, crashes included.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.examples import examples
from tests.model.test_broker_machine import TOPICS, ModelMessage
from tests.model.test_changes_machine import ChangesMachine

from tarry.broker.queries import listing


class QueriesMachine(ChangesMachine):
    # -- what the model expects --------------------------------------------------------------------------------------

    def must_be_pending(self) -> dict[str, ModelMessage]:
        """What is certainly pending. What was due once may have left, or wait for the next step."""
        unsure = {i for pair in self.either for i in pair}
        latest = self.latest()
        return {
            i: m
            for i, m in self.messages.items()
            if m.accepted
            and not (m.ended or m.perhaps_ended or m.delivered)
            and m.other_due_ms is None
            and i not in unsure
            and m.due_ms > latest
        }

    def may_be_pending(self, id: str, due_ms: int) -> bool:
        m = self.messages[id]
        moments = {m.due_ms, m.other_due_ms}
        return due_ms in moments and not m.ended and not m.delivered

    # -- queries -----------------------------------------------------------------------------------------------------

    @rule(
        limit=st.sampled_from([1, 3, 1000]),
        patience_s=st.sampled_from([0.0, 10.0]),
        topic=st.sampled_from([None, *TOPICS]),
        bodies=st.booleans(),
    )
    def list_all(self, limit: int, patience_s: float, topic: str | None, bodies: bool) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(listing, "FIND_S", patience_s)
            patch.setattr(listing, "READ_S", patience_s)
            seen, keys = self.listed(limit, topic, bodies)
        assert keys == sorted(set(keys))
        assert len(set(seen)) == len(seen)
        for id, due in seen:
            assert self.may_be_pending(id, due), f"{id} at {due} is not pending: {self.messages[id]}"
        wanted = {(i, m.due_ms) for i, m in self.must_be_pending().items() if topic in (None, m.topic)}
        assert wanted <= set(seen), f"left out: {wanted - set(seen)}"

    def listed(
        self, limit: int, topic: str | None, bodies: bool
    ) -> tuple[list[tuple[str, int]], list[tuple[int, int]]]:
        """All pages: ids and due times of what the model knows, and the places of all."""
        seen: list[tuple[str, int]] = []
        keys: list[tuple[int, int]] = []
        cursor = None
        while True:
            page = self.broker.list_pending(topic=topic, limit=limit, cursor=cursor, bodies=bodies)
            rows = page.rows.to_pylist()
            keys += [(r["due_ms"], r["seq"]) for r in rows]
            seen += [(r["id"], r["due_ms"]) for r in rows if r["topic"] in TOPICS]
            assert all(bool(r["body"]) == bodies for r in rows if r["topic"] in TOPICS)
            cursor = page.cursor
            if cursor is None:
                return seen, keys

    @precondition(lambda self: self.must_be_pending())
    @rule(data=st.data())
    def find_one(self, data) -> None:
        pending = self.must_be_pending()
        id = data.draw(st.sampled_from(sorted(pending)))
        m = pending[id]
        page = self.broker.list_pending(id=id)
        assert (page.rows["due_ms"].to_pylist(), page.cursor) == ([m.due_ms], None)
        key = page.rows["key"][0].as_py()
        if key is not None:
            page = self.broker.list_pending(topic=m.topic, key=key)
            assert page.rows["id"].to_pylist() == [id]
            assert self.broker.find_key(m.topic, key).due_ms == m.due_ms

    @rule()
    def next_due(self) -> None:
        entries = {entry.topic: entry for entry in self.broker.pending()}
        for topic in TOPICS:
            mine = [m.due_ms for m in self.must_be_pending().values() if m.topic == topic]
            if not mine:
                continue
            entry = entries[topic]
            assert entry.pending >= len(mine)
            assert entry.next_due_ms is not None
            assert entry.next_due_ms <= min(mine)
            if entry.next_due_ms < min(mine):
                # Then it is that of a message that may be pending.
                moments = {x for i, m in self.messages.items() if m.topic == topic for x in (m.due_ms, m.other_due_ms)}
                assert entry.next_due_ms in moments

    @rule(unit=st.sampled_from(["minute", "hour", "day"]))
    def forecast(self, unit: str) -> None:
        found = self.broker.forecast(unit=unit, until_ms=self.clock.now_ms() + 50 * 3_600_000)
        sure = sum(m.due_ms < found.until_ms for m in self.must_be_pending().values())
        unsure = sum(load.unsure for load in found.loads)
        assert all(load.rows >= 0 and load.unsure >= 0 for load in found.loads)
        assert sure <= found.rows + unsure
        assert sum(load.rows for load in found.loads) == found.rows


TestQueriesMachine = QueriesMachine.TestCase
TestQueriesMachine.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
