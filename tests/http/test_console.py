"""The console's pages without a browser: what they show, what their forms do, and whom they let in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from tarry.api.operation import Operation
from tarry.api.operations import GetOverview
from tarry.api.push import PushAttempt, PushProgress, PushSubscription
from tarry.base.addresses import parse_networks
from tarry.base.errors import InvalidArgumentError
from tarry.base.histogram import Histogram
from tarry.fronts.http.access import Access
from tarry.fronts.http.console import app as app_module
from tarry.fronts.http.console import formatting as shown
from tarry.fronts.http.console import past_span
from tarry.fronts.http.console.app import console_app
from tarry.fronts.http.console.causes import kind_of
from tarry.fronts.http.console.charts import lateness_bars
from tarry.fronts.http.console.guesses import Guesses
from tarry.fronts.http.console.messages import instant_ms
from tarry.fronts.http.services import HttpServices
from tarry.repeat import Repeat
from tarry.testing import TestBroker, open_broker

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
TOKEN = re.compile(r'name="form_token" value="([^"]+)"')
SECRET = "a-secret-of-twenty-characters-or-more"


class Attempts:
    """A pusher that remembers these."""

    def __init__(self, attempts: list[PushAttempt]) -> None:
        self._attempts = attempts

    def on_change(self) -> None: ...

    def progress(self, name: str) -> PushProgress | None:
        return None

    def attempts(self, name: str | None, id: str | None, failed: bool, limit: int) -> list[PushAttempt]:
        return [each for each in self._attempts if name in (None, each.name)][:limit]

    def test(self, subscription: PushSubscription) -> PushAttempt:
        return self._attempts[0]


class Console:
    """A browser without scripts: it keeps its cookie, and sends forms with the page's token."""

    def __init__(self, broker: TestBroker, http: httpx.AsyncClient) -> None:
        self.broker = broker
        self.http = http

    async def page(self, path: str, status: int = 200, **query: Any) -> str:
        answer = await self.http.get(path, params=query or None)
        assert answer.status_code == status, answer.text
        return answer.text

    async def send(self, path: str, fields: dict[str, Any], **headers: str) -> httpx.Response:
        token = TOKEN.search(
            (await self.http.get("/console/pending")).text + (await self.http.get("/console/schedule")).text
        )
        assert token is not None
        return await self.http.post(path, data={"form_token": token[1], **fields}, headers=headers)

    async def done(self, path: str, fields: dict[str, Any]) -> str:
        """The page that a form leads to."""
        answer = await self.send(path, fields)
        assert answer.status_code == 303, answer.text
        return await self.page(answer.headers["location"])

    def bodies(self) -> list[bytes]:
        found: list[bytes] = self.broker.list_pending().rows.column("body").to_pylist()
        return found


@asynccontextmanager
async def opened(
    directory: Path, *, mode: str = "open", host: str = "localhost:7777", proxies: str = "off"
) -> AsyncIterator[Console]:
    with open_broker(directory) as broker, ThreadPoolExecutor(2) as pool:
        services = HttpServices(broker, asyncio.get_running_loop(), pool)
        transport = httpx.ASGITransport(console_app(services, Access(broker, mode), parse_networks(proxies)))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as http:
            yield Console(broker, http)
        services.close()


def place(broker: TestBroker, **asked: Any) -> str:
    [row] = broker.list_pending(**asked).rows.to_pylist()
    return f"{row['seq']}.{row['due_ms']}"


@pytest.mark.asyncio
async def test_what_one_types_for_the_console_leads_to_the_overview(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        for path in ("/console", "/console/"):
            answer = await console.http.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, "/")


@pytest.mark.asyncio
async def test_every_page_of_an_empty_and_of_a_busy_broker(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        empty = {path: await console.page(path) for path in app_module.SHOWN if path.count("/") < 3 and not _asks(path)}
        assert "Nothing is pending." in empty["/console/pending"]
        assert "No topic yet" in empty["/"]
        _fill(console.broker)
        at = {"topic": "orders", "group": "g"}
        full = {path: await console.page(path) for path in empty}
        assert ">orders<" in full["/"] and "In flight" in full["/console/topics"]
        assert "every 1h" in full["/console/series"]
        assert "60,000" not in await console.page("/console/topic", topic="orders")
        assert "Nobody consumes for this group now: its messages wait." in await console.page("/console/group", **at)
        got = console.broker.receive(**at)
        page = await console.page("/console/group", **at)
        assert '<td class="num" data-label="In flight"><span>1</span>' in page and "1 consumer;" in page
        lease, offset = got.column("lease").to_numpy(), got.column("offset").to_numpy()
        console.broker.nack("orders", "g", lease, offset, delay_ms=0)
        assert "Not settled" in await console.page("/console/group", **at)
        assert "tries" in await console.page("/console/dead", **at)
        data = (await console.http.get("/console/data/forecast?unit=minute")).json()
        assert sum(data["loads"]) == data["rows"] and len(data["at"]) == 60
        assert len((await console.http.get("/console/data/live")).json()["at"]) == 1
        assert "There is no such page" in await console.page("/console/nothing", 404)
        assert "no group" in (await console.page("/console/group", 404, topic="orders", group="none")).lower()


@pytest.mark.asyncio
async def test_the_past_is_drawn_with_its_gaps(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        assert "Nothing was kept in this time" in await console.page("/console/past")
        broker = console.broker
        for _ in range(2):
            broker.schedule("orders", b"x", delay="2d")
            broker.advance("1m")
            broker.components.minutes.look()
            broker.advance("2m")  # nobody looks meanwhile, as of a broker that stood still
        page = await console.page("/console/past", range="1h")
        assert 'aria-current="true">1h<' in page and 'value="orders"' in page
        data = (await console.http.get("/console/data/past?range=1h&topic=orders")).json()
        assert data["step_s"] == 60 and len(data["at"]) in (60, 61)
        assert len({len(column) for name, column in data.items() if name != "step_s"}) == 1
        assert [rate for rate in data["accepted"] if rate] == [round(1 / 60, 3), round(1 / 180, 3)]
        assert data["pending"].count(None) > 50
        assert "not a topic name" in await console.page("/console/past", 422, topic="no topic")


@pytest.mark.asyncio
async def test_what_there_is_not_says_so_and_what_to_do(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        broker = console.broker
        broker.schedule("orders", b"x", delay="2d")
        broker.set_group("orders", "billing")
        page = await console.page("/console/topic", 404, topic="Order")
        assert "There is no topic" in page and "<strong>Order</strong>" in page
        assert 'href="/console/topic?topic=orders"' in page and 'href="/console/topics"' in page
        assert 'href="/console/schedule?topic=Order"' in page and "Save the settings" not in page
        for path in ("/console/group", "/console/dead"):
            page = await console.page(path, 404, topic="orders", group="biling")
            assert "has no group" in page and "group=billing" in page and 'href="/console/topics"' in page
            assert "There is no topic" in await console.page(path, 404, topic="none", group="g")
        broker.set_topic("declared", ordered=True)
        for topic in ("orders", "declared"):
            assert "Save the settings" in await console.page("/console/topic", topic=topic)
        assert "not a topic name" in await console.page("/console/topic", 422, topic=HOSTILE)
        assert "<script>alert" not in await console.page("/console/group", 404, topic="orders", group="<script>alert")


@pytest.mark.asyncio
async def test_a_span_of_the_past_has_its_figures_and_the_messages_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as console:
        broker = console.broker
        for topic in ("orders", "others"):
            broker.set_group(topic, "g", tries=1)
        broker.components.minutes.look()
        now_ms = broker.clock.now_ms()
        due_ms = now_ms // 60_000 * 60_000 + 90_000
        for n in range(3):
            broker.schedule("orders", f"of the herd {n}".encode(), due=due_ms)
        broker.schedule("others", b"of the minute", due=due_ms + 5)
        broker.advance(f"{due_ms + 30_000 - now_ms}ms")
        broker.components.minutes.look()
        broker.advance("2m")
        broker.components.minutes.look()
        got = broker.receive("orders", "g", max_messages=1)
        broker.nack("orders", "g", got.column("lease").to_numpy(), got.column("offset").to_numpy(), reason="broken")
        broker.step()
        span = {"from": str(due_ms), "until": str(due_ms + 1)}
        page = await console.page("/console/past/at", **span)
        assert "of the whole minute" in page and page.count("of the herd") == 2 and "of the minute" not in page
        assert "broken" in page and 'href="/console/dead?topic=orders&amp;group=g"' in page
        assert f'href="/console/past/at?topic=others&amp;from={due_ms}&amp;until={due_ms + 1}"' in page
        minute = {"from": str(due_ms // 60_000 * 60_000), "until": str(due_ms // 60_000 * 60_000 + 60_000)}
        page = await console.page("/console/past/at", **minute)
        assert "of the minute" in page and "3 messages</a> at" in page
        page = await console.page("/console/past/at", topic="others", **minute)
        assert "of the minute" in page and "of the herd" not in page and "By topic" not in page
        page = await console.page("/console/past/at", **{"from": "2d", "until": "1d"})
        assert "No figures are kept of this span" in page and page.count("None.") == 2
        to_come = await console.page("/console/past/at", **{"from": "1h", "until": str(broker.clock.now_ms() + 60_000)})
        assert "It is not over" in to_come
        assert "the span is empty" in await console.page("/console/past/at", 400, **{"from": "1h", "until": "2h"})
        assert "noon" in await console.page("/console/past/at", 400, **{"from": "noon", "until": "1h"})
        assert "not a topic name" in await console.page("/console/past/at", 422, topic="a b", **span)
        page = await console.page("/console/past", range="1h")
        assert f'href="/console/past/at?from={due_ms}&amp;until={due_ms + 1}"' in page, "the herd in the table"
        to_come = await console.page("/console/past/at", **{"from": "2100-01-01", "until": "2100-01-02"})
        assert "It has not begun." in to_come and "was stopped" not in to_come
        for path in ("/console/past", "/console/past/at"):
            assert "No such topic" in await console.page(path, 404, topic="order", **minute)
            assert "No such topic" not in await console.page(path, topic="others", **minute)
        wide = await console.page("/console/past/at", **{"from": "3d", "until": "1m"})
        assert "The figures are those from" in wide and "of the whole minute" not in wide
        assert "in a second" not in await console.page("/console/past/at", **minute)
        monkeypatch.setattr(past_span, "LOOK_S", -1)
        page = await console.page("/console/past/at", **minute)
        assert "as many as were found in a second" in page


@pytest.mark.asyncio
async def test_where_the_head_is_hidden_the_order_is_chosen(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        console.broker.set_group("orders", "g")
        page = await console.page("/console/topics", sort="-pending", groups="topic", find="or")
        assert '<option value="-pending" selected>Pending, most first</option>' in page
        assert '<option value="topic" selected>Topic, A to Z</option>' in page
        assert '<option value="">Most to do</option>' in page and "Next due, earliest first" in page
        form = page.split('id="sort-topics"')[1].split("</form>")[0]
        assert 'name="groups" value="topic"' in form and 'name="find" value="or"' in form
        assert 'name="sort" value' not in form
        assert '<option value="" selected>' in await console.page("/console/topics", sort="nothing")


@pytest.mark.asyncio
async def test_points_that_a_page_has_are_not_sent_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        counts = []
        for _ in range(3):
            console.broker.advance("2s")
            live = (await console.http.get("/console/data/live")).json()
            counts.append(len(live["at"]))
        assert counts == [0, 1, 2]
        later = (await console.http.get("/console/data/live", params={"after": live["at"][0]})).json()
        assert later == {name: values[1:] for name, values in live.items()}
        for given in ("x", "", "inf", "nan"):
            assert (await console.http.get("/console/data/live", params={"after": given})).json() == live


def _asks(path: str) -> bool:
    return path in ("/console/topic", "/console/group", "/console/message", "/console/live", "/console/login")


def _fill(broker: TestBroker) -> None:
    for delay in ("10m", "2d"):
        broker.schedule("orders", b"later", delay=delay)
    broker.schedule("orders", b"often", delay="1h", repeat=Repeat.every("1h"))
    broker.set_group("orders", "g", tries=1)
    broker.schedule("orders", b"lost")
    broker.step()
    got = broker.receive("orders", "g")
    broker.nack("orders", "g", got.column("lease").to_numpy(), got.column("offset").to_numpy())
    broker.schedule("orders", b"ready")
    broker.advance("2s")  # by then the snapshot that viewers share is old


@pytest.mark.asyncio
async def test_a_message_is_scheduled_found_moved_and_cancelled(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        form = {
            "topic": "orders",
            "body": "one\r\ntwo",
            "encoding": "text",
            "when": "delay",
            "delay": "2d",
            "key": "k7",
        }
        page = await console.done(
            "/console/schedule", {**form, "key": "k7", "on_key": "replace", "properties": "shop=4=2\n"}
        )
        assert "Scheduled, durably." in page and "shop" in page
        assert console.bodies() == [b"one\ntwo"]
        assert "k7" in await console.page("/console/pending", key="k7", topic="orders")
        assert "No pending message is like this" in await console.page("/console/pending", key="k8")
        assert "k7" not in await console.page("/console/pending", until="1d")
        at = {"message": place(console.broker)}
        assert "another due time" in await console.done("/console/message", {**at, "action": "move", "due": "3h"})
        [row] = console.broker.list_pending().rows.to_pylist()
        assert row["due_ms"] == console.broker.clock.now_ms() + 3 * 3_600_000
        assert "cancelled, replaced or moved" in await console.done("/console/message", {**at, "action": "cancel"})
        at = {"message": place(console.broker)}
        assert "Cancelled: no consumer" in await console.done("/console/message", {**at, "action": "cancel"})
        assert console.bodies() == []


@pytest.mark.asyncio
async def test_a_message_is_delivered_now(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        console.broker.schedule("orders", b"soon", delay="2d")
        at = {"message": place(console.broker)}
        assert "due now" in await console.done("/console/message", {**at, "action": "now"})
        console.broker.step()
        assert console.broker.receive("orders", "g").column("body").to_pylist() == [b"soon"]


@pytest.mark.asyncio
async def test_a_form_that_is_not_allowed_stays_filled_in(tmp_path: Path) -> None:
    cases = [
        ({"topic": ""}, "topic"),
        ({"delay": "soon"}, "soon"),
        ({"when": "due", "due": "tomorrow"}, "tomorrow"),
        ({"encoding": "base64", "body": "%%"}, "no base64"),
        ({"tries": "x"}, "tries"),
        ({"properties": "nothing"}, "NAME=VALUE"),
        ({"repeat": "cron", "cron": "* *"}, "cron"),
    ]
    async with opened(tmp_path) as console:
        for fields, text in cases:
            given = {"topic": "orders", "body": "kept", "when": "delay", "delay": "1h", "tag": HOSTILE, **fields}
            answer = await console.send("/console/schedule", given)
            assert answer.status_code == 400
            assert 'role="alert"' in answer.text and text in answer.text
            assert "<script>alert" not in answer.text and "&lt;script&gt;alert" in answer.text
        assert console.bodies() == []


@pytest.mark.asyncio
async def test_those_chosen_are_cancelled(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        for body in (b"a", b"b", b"c"):
            console.broker.schedule("orders", body, delay="1h")
        rows = console.broker.list_pending(limit=2).rows.to_pylist()
        chosen = [f"{row['seq']}.{row['due_ms']}" for row in rows]
        assert "2 messages cancelled" in await console.done("/console/pending/cancel", {"message": chosen})
        assert console.bodies() == [b"c"]
        assert "No message was chosen" in await console.done("/console/pending/cancel", {"back": "//elsewhere"})


@pytest.mark.asyncio
async def test_groups_are_paused_set_moved_and_forgotten(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        console.broker.set_group("orders", "g", tries=3)
        at = {"topic": "orders", "group": "g"}
        assert "paused" in await console.done("/console/group", {**at, "action": "pause"})
        assert console.broker.group_info("orders", "g").paused
        assert "goes on" in await console.done("/console/group", {**at, "action": "resume"})
        setting = {"set_tries": "7", "was_tries": "3", "set_ordered": ["false", "true"], "was_ordered": "false"}
        assert "saved" in await console.done("/console/group", {**at, "action": "set", **setting})
        info = console.broker.group_info("orders", "g")
        assert (info.tries, info.ordered) == (7, True)
        assert "tries is -1" in await console.done("/console/group", {**at, "action": "set", "set_tries": "-1"})
        assert "goes on from there" in await console.done("/console/group", {**at, "action": "seek", "to": "1h"})
        assert "is forgotten" in await console.done("/console/group", {**at, "action": "delete"})
        assert console.broker.groups() == []
        assert "saved" in await console.done("/console/topic", {"topic": "orders", "set_late": "dead", "was_late": ""})
        assert console.broker.topic_info("orders").late == "dead"


@pytest.mark.asyncio
async def test_dead_letters_are_respawned_and_purged(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        broker = console.broker
        broker.set_group("orders", "g", tries=1)
        for body in (b"a", b"b", b"c"):
            broker.schedule("orders", body)
        broker.step()
        got = broker.receive("orders", "g", max_messages=3)
        broker.nack("orders", "g", got.column("lease").to_numpy(), got.column("offset").to_numpy())
        broker.step()
        at = {"topic": "orders", "group": "g"}
        assert len(re.findall(r'name="offset"', await console.page("/console/dead", **at))) == 3
        assert "no dead letter was chosen" in await console.done("/console/dead", {**at, "action": "purge-chosen"})
        offsets = broker.dead_letters("orders", "g").column("offset").to_pylist()
        assert "1 dead letter deleted" in await console.done(
            "/console/dead", {**at, "action": "purge-chosen", "offset": str(offsets[0])}
        )
        assert "2 dead letters scheduled again" in await console.done("/console/dead", {**at, "action": "respawn-all"})
        broker.step()
        assert broker.receive("orders", "g", max_messages=9).column("body").to_pylist() == [b"b", b"c"]


@pytest.mark.asyncio
async def test_lists_are_sorted_and_found_as_the_address_says(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        for topic, count in (("a.orders", 1), ("b", 3), ("c.orders", 2)):
            for _ in range(count):
                console.broker.schedule(topic, b"x", delay="2d")
            console.broker.set_group(topic, f"g-{topic}")

        async def listed(**query: str) -> list[str]:
            page = await console.page("/console/topics", **query)
            return re.findall(r'href="/console/topic[?]topic=([a-z.]+)"', page.split("<h2>Groups")[0])

        assert await listed() == ["b", "c.orders", "a.orders"]
        assert await listed(sort="pending") == ["a.orders", "c.orders", "b"]
        assert await listed(sort="topic") == ["a.orders", "b", "c.orders"]
        assert await listed(sort="-topic") == ["c.orders", "b", "a.orders"]
        assert await listed(sort="nothing", find="ORDERS") == ["c.orders", "a.orders"]
        page = await console.page("/console/topics", sort="-pending", groups="-group", find="orders")
        assert 'hx-get="/console/topics?find=orders&amp;sort=-pending&amp;groups=-group"' in page
        assert page.count('aria-sort="descending"') == 2 and "sort=pending" in page
        assert page.index("g-c.orders") < page.index("g-a.orders") and "g-b" not in page
        assert "No topic has this in its name." in await console.page("/console/topics", find=HOSTILE)
        of_one = (await console.http.get("/console/data/forecast?unit=day&topic=b")).json()
        assert of_one["rows"] == 3
        assert 'data-topic="b"' in await console.page("/", topic="b")


def _bury(broker: TestBroker, reasons: list[str]) -> None:
    """Make a dead letter for each reason, whose body is the reason's."""
    broker.set_group("orders", "g", tries=1)
    for reason in reasons:
        broker.schedule("orders", reason.encode())
        broker.step()
        got = broker.receive("orders", "g")
        broker.nack("orders", "g", got.column("lease").to_numpy(), got.column("offset").to_numpy(), reason=reason)
        broker.step()


@pytest.mark.asyncio
async def test_dead_letters_of_a_cause_are_acted_on_together(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        broker = console.broker
        down = [f"order {n} of 0x{n:x}: connection refused" for n in range(30)]
        _bury(broker, [*down, f"{HOSTILE} 7", f"{HOSTILE} 8", ""])
        at = {"topic": "orders", "group": "g"}
        page = await console.page("/console/dead", **at)
        assert "Respawn these 30…" in page and "order … of …: connection refused" in page
        assert "<script>" not in page and "Respawn these 2…" in page and "Respawn these 1…" in page
        of_cause = {"cause": "tries", "reason": "order … of …: connection refused"}
        only = await console.page("/console/dead", **{**at, **of_cause})
        assert len(re.findall(r'name="offset"', only)) == 30
        [until] = set(re.findall(r'name="until" value="([0-9]+)"', page))
        _bury(broker, ["order 99 of 0x99: connection refused"])  # nobody has seen it on that page
        form = {**at, **of_cause, "until": until, "total": "30"}
        await console.done("/console/dead", {**form, "action": "respawn-cause"})
        progress = await _over(console, at)
        assert "Scheduled again: 30 of 30" in progress and "hx-get" not in progress
        broker.step()
        bodies = broker.receive("orders", "g", max_messages=99).column("body").to_pylist()
        assert sorted(bodies) == sorted(text.encode() for text in down)
        assert broker.dead_letters("orders", "g").num_rows == 4
        await console.done("/console/dead", {**form, "reason": "", "action": "purge-cause"})
        assert "Deleted: 1 of" in await _over(console, at)
        refused = await console.done("/console/dead", {**form, "until": "x", "action": "purge-cause"})
        assert "the form lacks until" in refused


async def _over(console: Console, at: dict[str, str]) -> str:
    """The progress when it has ended."""
    while "hx-get" in (page := await console.page("/console/dead/progress", **at)):
        await asyncio.sleep(0)
    return page


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("", ""),
        ("\n\n  timed out after 30.5 s\nTraceback …", "timed out after … s"),
        ("no row 7f3a9c21-aa10-4d9e-8a53-0f0c1b2d3e4f", "no row …"),
        ("KeyError: 'face'", "KeyError: 'face'"),
        ("10.0.0.7:5432 refused", "… refused"),
        ("x" * 500, "x" * 160),
    ],
)
def test_reasons_of_one_kind_are_the_same(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind


@pytest.mark.asyncio
async def test_hostile_names_and_bodies_are_text(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        big = HOSTILE.encode() * 20_000
        for body in (HOSTILE.encode(), big, b"\xff\x00", "abc\u202etxt".encode(), b'{"a": "</pre><script>"}'):
            console.broker.schedule(
                "orders", body, delay="1h", key=None, tag=HOSTILE, properties={HOSTILE: HOSTILE + "\u202e"}
            )
        console.broker.set_group("orders", "g")
        texts = [await console.page(path) for path in ("/", "/console/pending", "/console/topics")]
        for row in console.broker.list_pending().rows.to_pylist():
            texts.append(await console.page("/console/message", message=f"{row['seq']}.{row['due_ms']}"))
        texts.append(await console.page("/console/pending", tag=HOSTILE, id=HOSTILE))
        texts.append(await console.page("/console/history", what=HOSTILE))
        for text in texts:
            assert "<script>alert" not in text and "<img" not in text and "\u202e" not in text
            assert len(text) < 2_000_000
        assert any("⟨U+202E⟩" in text for text in texts)
        assert any("000000  ff 00" in text for text in texts)
        first = place(console.broker, limit=1)
        answer = await console.http.get("/console/message/body", params={"message": first})
        assert answer.content == HOSTILE.encode()
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.asyncio
async def test_a_message_that_is_none(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        for named in ("", "x", "1", "1.2.3", "9" * 30 + ".1", "1." + "9" * 19, "-1.-1"):
            answer = await console.http.get("/console/message", params={"message": named})
            assert answer.status_code in (400, 404), named


@pytest.mark.asyncio
async def test_every_answer_has_the_policy_and_no_page_has_scripts_of_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        _fill(console.broker)
        for path in (
            "/",
            "/console/pending",
            "/console/nothing",
            "/static/console.css",
            "/static/nothing",
            "/console/series",
        ):
            answer = await console.http.get(path)
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            if path.startswith("/console"):
                assert not re.search(r"<script(?! src=)|<style| style=| on[a-z]+=|javascript:", answer.text)
                assert answer.headers["cache-control"] == "no-store"
        console.http.cookies.clear()
        cookie = (await console.http.get("/")).headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie


@pytest.mark.asyncio
async def test_forms_of_other_sites_change_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        console.broker.schedule("orders", b"kept", delay="1h")
        fields = {"message": place(console.broker), "action": "cancel"}
        without = await console.http.post("/console/message", data=fields)
        wrong = await console.http.post("/console/message", data={**fields, "form_token": "x" * 43})
        foreign = await console.send("/console/message", fields, origin="http://evil.example")
        opaque = await console.send("/console/message", fields, origin="null")
        cross = await console.send("/console/message", fields, **{"sec-fetch-site": "cross-site"})
        named = await console.send("/console/message", fields, host="evil.example")
        for answer in (without, wrong, foreign, opaque, cross, named):
            assert answer.status_code == 403, answer.text
        assert (await console.http.get("/", headers={"host": "evil.example"})).status_code == 403
        big = await console.http.post("/console/message", content=b"a=" + b"x" * (9 << 20))
        assert big.status_code == 413
        assert console.bodies() == [b"kept"]


@pytest.mark.asyncio
async def test_in_tokens_mode_one_logs_in_and_a_deleted_token_ends_it(tmp_path: Path) -> None:
    async with opened(tmp_path, mode="tokens", host="queue.example:7777") as console:
        made = console.broker.create_token("*", secret=SECRET)
        console.broker.create_token("orders", secret="only-for-one-namespace-this")
        answer = await console.http.get("/console/pending?topic=a")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/console/login?next=%2Fconsole%2Fpending%3Ftopic%3Da"
        assert (await console.http.get("/console/data/live")).status_code == 401
        page = await console.page("/console/login", next="/console/pending?topic=a")
        token = TOKEN.search(page)
        assert token is not None
        for secret, text in (("wrong", "No such token"), ("only-for-one-namespace-this", "for one namespace")):
            refused = await console.http.post("/console/login", data={"form_token": token[1], "secret": secret})
            assert refused.status_code == 403 and text in refused.text and secret not in refused.text
        before = console.http.cookies["tarry_console"]
        fields = {"form_token": token[1], "secret": SECRET, "next": "//evil.example/"}
        answer = await console.http.post("/console/login", data=fields)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert console.http.cookies["tarry_console"] != before
        page = await console.page("/console/pending")
        assert "Log out" in page and SECRET not in page
        console.broker.delete_token(made.id)
        assert (await console.http.get("/console/pending")).status_code == 303


@pytest.mark.asyncio
async def test_strangers_push_out_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.fronts.http.console.sessions.SESSIONS_MAX", 2)
    async with opened(tmp_path, mode="tokens") as console:
        console.broker.create_token("*", secret=SECRET)
        page = await console.page("/console/login")
        token = TOKEN.search(page)
        assert token is not None
        answer = await console.http.post("/console/login", data={"form_token": token[1], "secret": SECRET})
        assert answer.status_code == 303
        name = console.http.cookies["tarry_console"]
        console.http.cookies.clear()
        for path in ["/console/system", "/console/live", "/console/login", "/console/nowhere"] * 3:
            console.http.cookies.clear()
            assert (await console.http.get(path)).status_code in (200, 303, 401)
        console.http.cookies.clear()
        console.http.cookies.set("tarry_console", name)
        assert "Log out" in await console.page("/console/system")


@pytest.mark.asyncio
async def test_the_login_form_is_of_the_visitor(tmp_path: Path) -> None:
    async with opened(tmp_path, mode="tokens") as console:
        console.broker.create_token("*", secret=SECRET)
        first = TOKEN.search(await console.page("/console/login"))
        again = TOKEN.search(await console.page("/console/login"))
        console.http.cookies.clear()
        other = TOKEN.search(await console.page("/console/login"))
        assert first is not None and again is not None and other is not None
        assert first[1] == again[1] != other[1]
        for wrong in (first[1], "", "x" * 64):
            answer = await console.http.post("/console/login", data={"form_token": wrong, "secret": SECRET})
            assert answer.status_code == 403
        assert (await console.http.get("/")).status_code == 303


@pytest.mark.asyncio
async def test_guesses_at_the_login_are_few_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path, mode="tokens", proxies="127.0.0.1/32") as console:
        console.broker.create_token("*", secret=SECRET)
        token = TOKEN.search(await console.page("/console/login"))
        assert token is not None
        visitor = console.http.cookies["tarry_console"]

        async def guess(secret: str, peer: str) -> httpx.Response:
            console.http.cookies.clear()
            console.http.cookies.set("tarry_console", visitor)
            fields = {"form_token": token[1], "secret": secret}
            return await console.http.post("/console/login", data=fields, headers={"x-forwarded-for": f"x, {peer}"})

        assert [(await guess(f"wrong{n}", "203.0.113.7")).status_code for n in range(12)] == [403] * 10 + [429] * 2
        late = await guess("wrong", "203.0.113.7")
        assert late.status_code == 429
        assert 0 < int(late.headers["retry-after"]) <= 60
        said = [r.getMessage() for r in caplog.records if "203.0.113.7" in r.getMessage()]
        assert len(said) == 11
        assert not [text for text in said if "wrong1" in text]
        # Whoever has a token is let in, whatever others behind the same address have tried.
        assert (await guess(SECRET, "203.0.113.7")).status_code == 303
        console.broker.advance("60s")
        assert (await guess("wrong", "203.0.113.7")).status_code == 403
        assert (await guess(SECRET, "203.0.113.7")).status_code == 303


def test_peers_of_the_login() -> None:
    def peer(host: str, *forwarded: str, proxies: str = "off") -> str:
        headers = [(b"x-forwarded-for", each.encode()) for each in forwarded]
        request = Request({"type": "http", "client": (host, 1), "headers": headers})
        return Guesses(parse_networks(proxies)).peer_of(request)

    assert peer("203.0.113.7", "198.51.100.1") == "203.0.113.7", "whoever comes from elsewhere may write what it likes"
    assert peer("127.0.0.1", "198.51.100.1") == "127.0.0.1", "and so may whoever is on this machine"
    assert peer("2001:db8:0:1::5") == peer("2001:db8:0:1::6") == "2001:db8:0:1::/64"
    assert peer("127.0.0.1", proxies="127.0.0.1/32") == "127.0.0.1"
    assert peer("127.0.0.1", "10.1.1.1, 198.51.100.1", proxies="127.0.0.1/32") == "198.51.100.1"
    assert peer("127.0.0.1", "10.1.1.1", "198.51.100.1,10.2.2.2", proxies="127.0.0.1/32 10.2.0.0/16") == "198.51.100.1"
    assert peer("203.0.113.7", "198.51.100.1", proxies="127.0.0.1/32") == "203.0.113.7"
    assert peer("127.0.0.1", "\x1b[2J", proxies="127.0.0.1/32") == repr("\x1b[2J")


@pytest.mark.asyncio
async def test_viewers_share_one_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as console:
        asked: list[Operation[Any]] = []
        call = HttpServices.call

        async def counted(self: HttpServices, operation: Operation[Any]) -> Any:
            asked.append(operation)
            return await call(self, operation)

        monkeypatch.setattr(HttpServices, "call", counted)
        await asyncio.gather(*(console.http.get("/console/live") for _ in range(20)))
        assert [type(operation) for operation in asked] == [GetOverview]
        for _ in range(10):
            console.broker.schedule("a", b"", delay="2h")
        console.broker.advance("2s")
        await console.page("/console/live")
        assert len(asked) == 2
        live = (await console.http.get("/console/data/live")).json()
        assert live["accepted"] == [5.0]
        assert live["delivered_p99"] == [None]


def test_numbers_and_times_for_people() -> None:
    assert [shown.short(n) for n in (None, 0, 999, 12_345, 4_560_000, 999_600_000_000)] == [
        "-", "0", "999", "12.3 k", "4.56 M", "1000 G",
    ]  # fmt: skip
    assert [shown.size(n) for n in (0, 1023, 1536, 300 << 20)] == ["0 B", "1023 B", "1.5 KiB", "300 MiB"]
    assert [shown.span(n) for n in (0, 999, 61_000, 90_000_000, 40 * 365 * 86_400_000)] == [
        "0ms", "999ms", "1m 1s", "1d 1h", "40.0 years",
    ]  # fmt: skip
    assert shown.relative(1_000_000, 1_000_500) == "now"
    assert shown.instant(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert shown.preview(b"\xff" * 100).startswith("ff ff")
    assert shown.preview("é".encode() * 1000).endswith(" …")
    assert shown.name("a\nb\x00") == "a⟨U+000A⟩b⟨U+0000⟩"


def test_bodies_as_text_json_and_hex() -> None:
    assert shown.Body.of(b"").text == ""
    assert shown.Body.of(b'{"b": 1}').json == '{\n  "b": 1\n}'
    assert shown.Body.of(b"\xff").text is None
    assert shown.Body.of(b"[" * 50_000).json is None
    cut = shown.Body.of("é".encode() * 40_000 + b"\xff")
    assert cut.is_cut and cut.text == "é" * 32_768 and cut.json is None
    assert shown.Body.of(b"x" + "é".encode() * 40_000).text == "x" + "é" * 32_767


def test_instants_as_people_write_them() -> None:
    now_ms = 1_700_000_000_000
    assert instant_ms("2026-12-01 06:00", now_ms) == 1_796_104_800_000
    assert instant_ms("2026-12-01T08:00+02:00", now_ms) == 1_796_104_800_000
    assert instant_ms("1796104800000", now_ms) == 1_796_104_800_000
    assert instant_ms(" 1h30m", now_ms) == now_ms + 5_400_000
    assert instant_ms("1h", now_ms, past=True) == now_ms - 3_600_000
    for text in ("", "noon", "2026-13-01"):
        with pytest.raises(InvalidArgumentError, match="allowed: 2026"):
            instant_ms(text, now_ms)


def test_the_histogram_of_lateness_counts_everything() -> None:
    histogram = Histogram()
    assert lateness_bars(histogram) == []
    histogram.record([0, 0, 1, 4, 70_000])
    bars = lateness_bars(histogram)
    assert sum(bar.count for bar in bars) == 5
    assert [(bar.label, bar.count) for bar in bars if bar.count] == [("<1", 2), ("<2", 1), ("<5", 1), ("≥60s", 1)]


def _attempt(*, status: int | None = 500, outcome: str = "failed", error: str | None = None) -> PushAttempt:
    return PushAttempt(
        name="hook",
        webhook_id="msg_1",
        id="order<7>",
        seq=1,
        topic="orders",
        attempt=2,
        at_ms=1,
        duration_ms=12.34,
        status=status,
        outcome=outcome,
        error=error,
        answer="<script>alert(1)</script>",
        again_ms=None,
    )


@pytest.mark.asyncio
async def test_push_subscriptions_and_their_last_requests(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        assert "There is no push subscription" in await console.page("/console/push")
        console.broker.set_push("hook", topic="orders", url="https://example.com/in?secret=1")
        attempt = _attempt()
        detach = console.broker.push.attach(Attempts([attempt]))
        shown = await console.page("/console/push", name="hook")
        assert ">hook<" in shown and "order&lt;7&gt;" in shown and "12.3 ms" in shown and "500" in shown
        assert "<script>alert" not in shown and "secret=1" not in shown
        assert "No request is remembered" in await console.page("/console/push", name="none")
        detach()


@pytest.mark.asyncio
async def test_push_subscriptions_are_paused_tried_replayed_and_deleted(tmp_path: Path) -> None:
    async with opened(tmp_path) as console:
        broker, at = console.broker, {"name": "hook"}
        broker.set_push("hook", topic="orders", url="https://example.com/in", tries=1, headers={"X-Own": "1"})
        group = broker.push_info("hook").group
        assert "X-Own" in await console.page("/console/push", **at)
        paused = await console.done("/console/push", {**at, "action": "pause", "reason": "they <move>"})
        assert "Nothing is pushed until" in paused and "they &lt;move&gt;" in paused
        assert broker.push_info("hook").paused
        assert "pushes again" in await console.done("/console/push", {**at, "action": "resume"})
        assert not broker.push_info("hook").paused
        assert "does not push" in await console.done("/console/push", {**at, "action": "test"})
        tried = Attempts([_attempt(status=None, outcome="failed", error="<refused>")])
        detach = broker.push.attach(tried)
        assert "failed (no answer, 12.3 ms): &lt;refused&gt;" in await console.done(
            "/console/push", {**at, "action": "test"}
        )
        detach()
        broker.schedule("orders", b"a")
        broker.step()
        got = broker.receive("orders", group)
        broker.nack("orders", group, got.column("lease").to_numpy(), got.column("offset").to_numpy())
        broker.step()
        assert "1 dead letter of its group" in await console.page("/console/push", **at)
        assert "1 dead letter will be pushed again" in await console.done("/console/push", {**at, "action": "replay"})
        broker.step()
        assert broker.receive("orders", group).column("body").to_pylist() == [b"a"]
        assert "allowed: pause" in await console.done("/console/push", {**at, "action": "explode"})
        assert "hook is deleted" in await console.done("/console/push", {**at, "action": "delete"})
        assert broker.push_subscriptions() == []
        assert "no push subscription" in (await console.done("/console/push", {**at, "action": "pause"})).lower()
