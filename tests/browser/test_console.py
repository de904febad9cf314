"""The console in headless Chromium: ``make browser``."""

from __future__ import annotations

import re
import threading
import time
from typing import Literal
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Route, expect

from tarry.broker import Broker
from tarry.repeat import Repeat
from tests.browser.chromium import found
from tests.browser.visit import PHONE, WIDE, Visit

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(found() is None, reason="chromium is not installed: apt-get install chromium"),
]

HOSTILE = """"><script>document.title='hit'</script><img src=x onerror="document.title='hit'">"""
TURNED = "abc\u202etxt.exe"
CRAMPED = """[
    ...[...document.querySelectorAll('.flush .list td:not(.pick)')].filter(e => e.offsetParent
        && e.getBoundingClientRect().left - e.closest('.flush').getBoundingClientRect().left < 8),
    ...[...document.querySelectorAll('.list td.num:not([data-label])')].filter(e => e.offsetParent),
].map(e => e.outerHTML.slice(0, 80))"""
"""Cells of lists that begin at the edge of their card, and figures that do not say of what."""
PAGES = (
    *("/", "/console/topics", "/console/topic?topic=orders", "/console/group?topic=orders&group=g"),
    *("/console/pending", "/console/series", "/console/dead", "/console/dead?topic=orders&group=g"),
    *("/console/past", "/console/past?range=30d&topic=orders", "/console/past/at?from=1h&until=1m"),
    *(
        "/console/topics?sort=-accepted&groups=waiting",
        "/console/topic?topic=none",
        "/console/group?topic=orders&group=no",
    ),
    *("/console/jobs", "/console/push", "/console/push?name=hook", "/console/schedule", "/console/system"),
)


@pytest.fixture(scope="session", autouse=True)
def content(broker: Broker) -> None:
    """Something of everything, with names and bodies that are hostile."""
    long = "n" * 200
    for topic in ("orders", "t" * 127):
        broker.schedule(topic, HOSTILE, delay="2d", key=long, tag=HOSTILE, properties={HOSTILE: TURNED, long: long})
    broker.schedule("orders", b"x" * (1 << 20), delay="3d")
    broker.schedule("orders", HOSTILE.encode() * 10_000, delay="3d", id="big")
    broker.schedule("orders", bytes(range(256)), delay="3d", id="bytes")
    broker.schedule("orders", TURNED, delay="3d", id="turned")
    broker.schedule("orders", '{"nested": {"html": "</pre><script>document.title=1</script>"}}', delay="4d", id="json")
    broker.schedule("orders", b"again", delay="1h", repeat=Repeat.cron("0 9 * * *", "Europe/Berlin"))
    broker.set_push("hook", topic="orders", url=f"https://example.com/{'u' * 200}", headers={"X-" + "H" * 90: "1"})
    broker.set_group("orders", "g", tries=1)
    broker.schedule("orders", HOSTILE)
    got = broker.receive("orders", "g", wait_ms=60_000)
    broker.nack("orders", "g", got.column("lease").to_numpy(), got.column("offset").to_numpy())


def message(broker: Broker, id: str) -> str:
    [row] = broker.list_pending(topic="orders", id=id).rows.to_pylist()
    return f"/console/message?message={row['seq']}.{row['due_ms']}"


def test_every_page_on_a_phone_and_in_the_dark(visit: Visit) -> None:
    visit.resize(PHONE)
    visit.page.emulate_media(color_scheme="dark")
    for path in PAGES:
        page = visit.go(path)
        expect(page.locator("h1")).to_have_count(1)
        assert visit.hangs_over_px <= 0, path
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 21, 24)"
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
            ".filter(e => !e.labels.length && !e.ariaLabel).length"
        )
        assert unnamed == 0, path
        assert page.evaluate(CRAMPED) == [], path
    page.click("#menu")
    expect(page.locator("#nav")).to_be_visible()


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["desk", "phone"])
def test_no_page_violates_a_rule_of_accessibility(
    visit: Visit, broker: Broker, size: dict[str, int], scheme: Literal["light", "dark"]
) -> None:
    """The rules are those of axe-core: contrast, names, landmarks, headings, tables, targets."""
    visit.resize(size)
    visit.page.emulate_media(color_scheme=scheme)
    for path in (*PAGES, message(broker, "json")):
        page = visit.go(path)
        expect(page.locator("h1")).to_have_count(1)
        result = Axe().run(page)
        assert result.response["violations"] == [], f"{path}: {result.generate_report()}"


def test_charts_and_figures_come_to_life(visit: Visit, broker: Broker) -> None:
    page = visit.go("/")
    expect(page.locator("#chart-load canvas")).to_be_visible()
    expect(page.locator("#unit-hour")).to_have_attribute("aria-pressed", "true")
    page.click("#unit-day")
    expect(page.locator("#unit-day")).to_have_attribute("aria-pressed", "true")
    before = page.locator(".tile.main .value").inner_text()
    broker.schedule("counted", b"one", delay="5d")
    expect(page.locator(".tile.main .value")).not_to_have_text(before)
    # The page was brought up to date in place: what is drawn stays.
    expect(page.locator("#chart-load canvas")).to_be_visible()
    expect(page.locator("#chart-rates canvas")).to_be_visible()


def test_a_bar_opens_the_messages_behind_it(visit: Visit, broker: Broker) -> None:
    for _ in range(40):
        broker.schedule("bars", b"x", delay="5m")
    page = visit.go("/?topic=bars&unit=hour")
    expect(page.locator("#chart-load canvas")).to_be_visible()
    page.click("#unit-day")
    expect(page).to_have_url(re.compile("topic=bars.*unit=day"))
    page.click("#unit-minute")
    expect(page.locator("#unit-minute")).to_have_attribute("aria-pressed", "true")
    with page.expect_response(lambda answer: "unit=day" in answer.url):
        page.click("#unit-day")
    expect(page.locator("#chart-load canvas")).to_be_visible()
    box = page.locator("#chart-load .u-over").bounding_box()
    assert box is not None
    # The first bar is today, which nearly all of them fall into.
    page.mouse.click(box["x"] + box["width"] / 64, box["y"] + box["height"] - 4)
    expect(page).to_have_url(re.compile("/console/pending.topic=bars&from=[0-9]+&until=[0-9]+"))


SHIFTS = """() => { window.shifts = []; new PerformanceObserver((list) => {
    for (const each of list.getEntries()) {
        for (const { node } of each.sources) window.shifts.push(node?.parentElement?.outerHTML.slice(0, 300) ?? "?");
    }
}).observe({ type: "layout-shift", buffered: true }); }"""


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["desk", "phone"])
def test_a_forecast_that_is_being_made_says_so_and_nothing_moves(visit: Visit, size: dict[str, int]) -> None:
    visit.resize(size)
    held: list[Route] = []
    visit.page.route("**/console/data/forecast**", lambda route: held.append(route))
    with visit.page.expect_request("**/console/data/forecast**"):
        page = visit.go("/")
    page.evaluate(SHIFTS)
    state = page.locator("#load-state")
    expect(state).to_have_text("The load to come is being counted…")
    expect(state).to_be_in_viewport()
    herds = [{"due_ms": 1_893_456_000_000 + n, "rows": 1000 + n} for n in range(9)]
    whole = {"unit": "hour", "unit_s": 3600, "now_ms": 1_893_456_000_000, "at": [1_893_456_000, 1_893_459_600]}
    counts = {"rows": 5, "loads": [2, 3], "unsure": [0, 0], "herds": herds}
    held.pop().fulfill(json=whole | counts)
    expect(state).to_be_hidden()
    expect(page.locator("#chart-load canvas")).to_be_visible()
    expect(page.locator("#herds a")).to_have_count(6)
    expect(page.locator("#load-at")).to_have_text("counted at 00:00:00")
    with page.expect_request("**unit=day**"):
        page.click("#unit-day")
    expect(state).to_have_text("The load to come is being counted…")
    expect(page.locator("#chart-load canvas")).to_be_visible()
    held.pop().fulfill(status=500, json={})
    expect(state).to_contain_text("could not be counted")
    page.click("#unit-minute")
    expect(state).to_have_text("The load to come is being counted…")
    held.pop().fulfill(json=whole | {"unit": "minute", "rows": 0, "at": [0], "loads": [0], "unsure": [0], "herds": []})
    expect(page.locator("#chart-load")).to_have_text("Nothing falls due within the next hour.")
    assert page.evaluate("window.shifts") == []
    visit.complaints = [text for text in visit.complaints if "500" not in text]


def test_a_herd_of_the_past_opens_what_is_kept_of_it(visit: Visit) -> None:
    minute = time.time_ns() // 60_000_000_000 - 5
    herd_ms = minute * 60_000 + 17
    steps = [(minute + n) * 60 for n in range(3)]
    names = ("accepted", "fired", "handed_out", "acknowledged", "ready", "lateness_p50_ms", "lateness_p99_ms")
    past = {name: [1, 1, 1] for name in names} | {"at": steps, "step_s": 60, "pending": [9, 9, None]}
    past |= {"herd_rows": [400, 1, None], "herd_due_ms": [herd_ms, steps[1] * 1000, None]}
    visit.page.route("**/console/data/past**", lambda route: route.fulfill(json=past))
    page = visit.go("/console/past")
    expect(page.locator("#past-herds a")).to_have_text([re.compile("^400 at ")])
    page.click("#past-herds a")
    expect(page).to_have_url(re.compile(f"/console/past/at[?]from={herd_ms}&until={herd_ms + 1}$"))
    expect(page.locator("h1")).to_contain_text("1ms from")
    page.go_back()
    box = page.locator("[data-chart=past-pending] .u-over").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 2, box["y"] + box["height"] / 2)
    expect(page).to_have_url(re.compile(f"/console/past/at[?]from={steps[0] * 1000}&until={steps[1] * 1000}$"))


def test_lists_are_sorted_on_a_phone(visit: Visit, broker: Broker) -> None:
    for count, topic in enumerate(("sorted.a", "sorted.b"), 1):
        for _ in range(count):
            broker.schedule(topic, b"x", delay="2d")
    visit.resize(PHONE)
    page = visit.go("/console/topics?find=sorted.")
    rows = page.locator("section").first.locator("tbody td:first-child")
    expect(rows).to_have_text(["sorted.b", "sorted.a"])
    order = page.get_by_label("Sorted by").first
    order.select_option(label="Accepted, fewest first")
    for each in (order, page.locator("#sort-topics button")):
        box = each.bounding_box()
        assert box is not None and min(box["width"], box["height"]) >= 24
    page.locator("#sort-topics button").click()
    expect(page).to_have_url(re.compile("find=sorted.*sort=accepted"))
    expect(rows).to_have_text(["sorted.a", "sorted.b"])
    expect(page.locator("td[data-label=Accepted]").first).to_be_visible()
    expect(order).to_have_value("accepted")
    visit.resize(WIDE)
    expect(page.locator("#sort-topics")).to_be_hidden()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Accepted ▲")


def test_the_histogram_can_be_read_on_a_phone(visit: Visit, broker: Broker) -> None:
    consumer = threading.Thread(target=lambda: broker.receive("late", "g", wait_ms=60_000))
    consumer.start()
    broker.schedule("late", b"x", delay=1)
    consumer.join()
    for size, selector in ((PHONE, ".lines th"), (WIDE, ".bars .at")):
        visit.resize(size)
        page = visit.go("/")
        label = page.locator(selector).first
        expect(label).to_be_visible()
        height = label.evaluate("e => parseFloat(getComputedStyle(e).fontSize) * (e.getScreenCTM?.().a ?? 1)")
        assert height >= 9.5


def test_a_page_that_is_hidden_asks_nothing(visit: Visit) -> None:
    """The browser's clock is run on, not waited for."""
    page = visit.page
    page.clock.install()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in PAGES:
        visit.go(path)
        page.wait_for_load_state("networkidle")
        page.evaluate("Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        asked.clear()
        page.clock.run_for(180_000)
        assert asked == [], path
    visit.go("/")
    page.evaluate("Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })")
    with page.expect_request("**/console/live"), page.expect_request("**/console/data/forecast**"):
        page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")


def test_cancelling_asks_first(visit: Visit, broker: Broker) -> None:
    broker.schedule("orders", b"to be cancelled", delay="2d", id="doomed")
    page = visit.go("/console/pending?id=doomed")
    page.click("tbody a.mono")
    page.click("text=Cancel…")
    expect(page.locator("dialog#cancel")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog#cancel")).to_be_hidden()
    assert broker.list_pending(id="doomed").rows.num_rows == 1
    page.click("text=Cancel…")
    page.click("text=Cancel it")
    expect(page.locator(".notice.good")).to_contain_text("no consumer will ever get it")
    assert broker.list_pending(topic="orders", id="doomed").rows.num_rows == 0


def test_those_chosen_are_cancelled_by_keyboard(visit: Visit, broker: Broker) -> None:
    for _ in range(3):
        broker.schedule("many", b"x", delay="2d")
    page = visit.go("/console/pending?topic=many")
    button = page.locator("text=Cancel those chosen…")
    expect(button).to_have_attribute("aria-disabled", "true")
    page.focus("[data-all]")
    page.keyboard.press("Space")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open]")).to_contain_text("The 3 chosen")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".notice.good")).to_contain_text("3 messages cancelled")
    assert broker.list_pending(topic="many").rows.num_rows == 0


def test_a_message_is_scheduled_by_hand(visit: Visit, broker: Broker) -> None:
    page = visit.go("/console/schedule")
    page.fill("#topic", "by-hand")
    page.fill("#body", HOSTILE + "\n" + TURNED)
    expect(page.locator("#due")).to_be_hidden()
    page.select_option("#when", "due")
    page.fill("#due", "2030-01-01 00:00")
    page.click("text=Schedule it")
    expect(page.locator(".notice.good")).to_contain_text("Scheduled")
    [row] = broker.list_pending(topic="by-hand").rows.to_pylist()
    assert (row["body"].decode(), row["due_ms"]) == (HOSTILE + "\n" + TURNED, 1_893_456_000_000)
    expect(page.locator("time").first).to_have_text("2030-01-01 00:00:00.000")


def test_hostile_bodies_and_names_do_nothing(visit: Visit, broker: Broker) -> None:
    paths = [message(broker, id) for id in ("big", "bytes", "turned", "json")]
    paths += ["/console/pending?tag=" + quote(HOSTILE), "/console/dead?topic=orders&group=g", "/console/topics"]
    paths += ["/console/history?what=" + quote(HOSTILE), "/console/topic?topic=orders"]
    for path in paths:
        page = visit.go(path)
        expect(page).to_have_title(re.compile("· Tarry$"))
        assert page.locator("main script, main img").count() == 0
        assert "\u202e" not in page.content()
        assert visit.hangs_over_px <= 0, path
    page = visit.go(message(broker, "json"))
    expect(page.locator("#body-json")).to_contain_text("</pre><script>")
    page.click("#tab-hex")
    expect(page.locator("#body-hex")).to_be_visible()
    expect(page.locator("#body-json")).to_be_hidden()


def test_the_theme_and_the_zone_are_remembered(visit: Visit) -> None:
    page = visit.go("/console/pending")
    page.click("#theme-button")
    page.click("#theme-button")
    expect(page.locator("#theme-button")).to_have_text("Theme: dark")
    page.click("#zone-button")
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 21, 24)"
    assert page.evaluate("localStorage.getItem('tarry-zone')") == "local"


def test_a_push_subscription_is_deleted_after_asking(visit: Visit, broker: Broker) -> None:
    broker.set_push("doomed", topic="orders", url="https://example.com/")
    page = visit.go("/console/push")
    page.click("text=doomed")
    page.get_by_role("button", name="Delete…").click()
    page.keyboard.press("Escape")
    expect(page.locator("dialog#delete")).to_be_hidden()
    assert broker.push_info("doomed").url
    # By keyboard: what goes back has the focus at first.
    page.get_by_role("button", name="Delete…").press("Enter")
    expect(page.locator("dialog#delete button[data-close]")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".notice.good")).to_contain_text("doomed is deleted")
    assert [each.name for each in broker.push_subscriptions()] == ["hook"]
