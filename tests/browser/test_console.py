"""The console in headless Chromium: ``make browser``."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

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
    *("/console/past", "/console/past?range=30d&topic=orders"),
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
